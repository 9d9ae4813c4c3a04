-- Returns at most ARGV[2] broadcasts after ARGV[1], or 'lost' if some of them were dropped. Without an id: the last one.
local log = KEYS[1]
local state = redis.call('HMGET', log .. ':s', 'gone', 'id')
local gone, last = state[1] or '0-0', state[2] or '0-0'
if ARGV[1] == '' then
  return { 'ok', last }
end

local function is_before(a, b)
  local a_time, a_count = string.match(a, '^(%d+)-(%d+)$')
  local b_time, b_count = string.match(b, '^(%d+)-(%d+)$')
  a_time, b_time = tonumber(a_time), tonumber(b_time)
  return a_time < b_time or (a_time == b_time and tonumber(a_count) < tonumber(b_count))
end

if is_before(ARGV[1], gone) or is_before(last, ARGV[1]) then
  return { 'lost', last }
end
return { 'ok', last, redis.call('XRANGE', log, '(' .. ARGV[1], '+', 'COUNT', ARGV[2]) }
