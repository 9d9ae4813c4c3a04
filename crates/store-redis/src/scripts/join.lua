-- A new member. KEYS[1] is the set of members. ARGV: 1 skew, 2 random part, 3 lease, 4 name or '', 5 id of the store if it
-- has none, 6 secret if it has none.
local members = KEYS[1]
local names = members .. ':names'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
local member = redis.call('INCR', members .. ':inc') .. '.' .. ARGV[2]
redis.call('SET', members .. ':born', ARGV[5], 'NX')
redis.call('SET', members .. ':secret', ARGV[6], 'NX')
if ARGV[4] ~= '' then
  local replaced = redis.call('HGET', names, ARGV[4])
  if replaced then
    redis.call('ZREM', members, replaced)
  end
  redis.call('HSET', names, ARGV[4], member)
end
redis.call('ZADD', members, now + tonumber(ARGV[3]), member)
return { 'ok', member, redis.call('GET', members .. ':secret') }
