-- The views of a session: epochs and nodes.
if redis.call('EXISTS', session) == 0 then
  return { 'gone' }
end
return { 'ok', redis.call('HGET', session, 'ep'), redis.call('HGETALL', session .. ':v') }
