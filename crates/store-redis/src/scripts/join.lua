-- A new member. ARGV: 1 skew, 2 random part, 3 lease, 4 name or '', 5 id of the store if it has none, 6 secret if it has none,
-- 7 id of the process, 8 its previous incarnation or ''.
local name, process, previous = ARGV[4], ARGV[7], ARGV[8]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
-- The older process exits. One that was paused or cut off must not take the name back.
if name ~= '' and previous ~= '' and is_replaced(name, previous, process) then
  return { 'replaced' }
end
local member = redis.call('INCR', members .. ':inc') .. '.' .. ARGV[2]
redis.call('SET', members .. ':born', ARGV[5], 'NX')
redis.call('SET', members .. ':secret', ARGV[6], 'NX')
if name ~= '' then
  local replaced = redis.call('HGET', names, name)
  if replaced then
    redis.call('ZREM', members, replaced)
  end
  redis.call('HSET', names, name, member)
  redis.call('HSET', processes, name, process)
end
redis.call('ZADD', members, now + tonumber(ARGV[3]), member)
return { 'ok', member, redis.call('GET', members .. ':secret'), now }
