-- Adds a signal to the broadcast log. KEYS[1] is the log. ARGV: 1 channel, 2 server, 3 token, 4 maximum entries, 5 maximum
-- bytes, 6 signal.
local log, state = KEYS[1], KEYS[1] .. ':s'
local fields = redis.call('HMGET', state, 'b', 'id', 'token')
if fields[3] == ARGV[3] then
  return { 'ok', fields[2] } -- a repetition
end
local bytes, length = tonumber(fields[1] or 0) + #ARGV[6], redis.call('XLEN', log) + 1
local id = redis.call('XADD', log, '*', 'd', ARGV[6])
while length > tonumber(ARGV[4]) or (bytes > tonumber(ARGV[5]) and length > 1) do
  local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', log, oldest[1])
  redis.call('HSET', state, 'gone', oldest[1])
  bytes, length = bytes - #oldest[2][2], length - 1
end
redis.call('HSET', state, 'b', bytes, 'id', id, 'token', ARGV[3])
redis.call('PUBLISH', ARGV[1], 'b ' .. ARGV[2])
return { 'ok', id }
