-- Ends the session if it was idle for ARGV[5] milliseconds, or touches it if ARGV[6] is '1'. Returns the time of the last
-- use if the session continues.
local at = tonumber(redis.call('HGET', session, 'at') or nil)
if not at then
  return { 'gone' }
end
local time = now()
if time - at < tonumber(ARGV[5]) then
  return { 'ok', math.min(at, time) }
end
if ARGV[6] == '1' then
  redis.call('HDEL', session, '') -- see touch.lua
  redis.call('HSET', session, 'at', time)
  return { 'ok', time }
end
return { 'expired', end_session() }
