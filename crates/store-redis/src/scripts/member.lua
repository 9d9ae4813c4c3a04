-- Leases. ARGV: 1 skew, 2 action, 3 member, 4 lease, 5 name or '', 6 id of the process.
local member = ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
-- Death is final: an expired lease is removed, and a removed one cannot be renewed. Redis allows this write when its
-- memory is full. It is the first write, so the renewal below is allowed too.
redis.call('ZREMRANGEBYSCORE', members, '-inf', now)
local holds = redis.call('ZSCORE', members, member)
if ARGV[2] == 'check' then
  return { 'ok', holds and 1 or 0 }
end
if ARGV[2] == 'leave' then
  redis.call('ZREM', members, member)
  if ARGV[5] ~= '' and redis.call('HGET', names, ARGV[5]) == member then
    redis.call('HDEL', names, ARGV[5])
    redis.call('HDEL', processes, ARGV[5])
  end
  return { 'ok' }
end
if ARGV[5] ~= '' and is_replaced(ARGV[5], member, ARGV[6]) then
  return { 'replaced' }
end
if not holds then
  return { 'ended' }
end
redis.call('ZADD', members, now + tonumber(ARGV[4]), member)
return { 'ok', now, redis.call('GET', members .. ':born') or '', redis.call('ZRANGE', members, 0, -1) }
