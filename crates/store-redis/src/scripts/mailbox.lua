-- Measures a mailbox. KEYS[1] is the mailbox. Returns the number of messages and the age of the oldest one in
-- milliseconds. The ids of messages are times of this server.
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not oldest then
  return { 'ok', 0, 0 }
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local sent = tonumber(string.match(oldest[1], '^%d+'))
return { 'ok', redis.call('XLEN', KEYS[1]), math.max(0, now - sent) }
