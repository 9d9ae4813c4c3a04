-- The GETs of a session. ARGV[5] is the action, ARGV[6] the ordinal, or the node of 'remove'. ARGV[7] is the maximum of
-- GETs for 'listen'.
local action, listeners = ARGV[5], session .. ':g'
if redis.call('EXISTS', session) == 0 then
  return { 'gone' }
end
local member = ARGV[6] .. ':' .. me
if action == 'listen' then
  redis.call('ZADD', listeners, redis.call('HINCRBY', session, 'gseq', 1), member)
  limit_listeners(tonumber(ARGV[7]))
  return { 'ok', redis.call('HGET', session, 'bcast') or '0-0' }
elseif action == 'applied' then
  return { 'ok', redis.call('HGET', session, 'bcast') or '0-0' }
elseif action == 'unlisten' then
  redis.call('ZREM', listeners, member)
elseif action == 'demote' then
  local oldest = redis.call('ZRANGE', listeners, 0, 0, 'WITHSCORES')
  if oldest[1] and redis.call('ZSCORE', listeners, member) then
    redis.call('ZADD', listeners, oldest[2] - 1, member)
  end
else
  for _, other in ipairs(redis.call('ZRANGE', listeners, 0, -1)) do
    if string.match(other, ':(.*)$') == ARGV[6] then
      redis.call('ZREM', listeners, other)
    end
  end
end
wake_listener()
return { 'ok' }
