-- Claims a session whose owner is ARGV[6] ('' for none), or releases it. ARGV[5] is the action.
if redis.call('EXISTS', session) == 0 then
  return { 'gone' }
end
local owner = redis.call('HGET', session, 'own') or ''
if ARGV[5] == 'claim' and owner ~= me and owner == ARGV[6] then
  redis.call('HSET', session, 'own', me)
  if owner ~= '' then
    wake(owner, 's', me)
  end
  owner = me
elseif ARGV[5] == 'release' and owner == me then
  redis.call('HDEL', session, 'own')
  owner = ''
end
return { 'ok', owner }
