if redis.call('EXISTS', session) == 0 then
  return { 'gone' }
end
-- A write that is allowed when the memory is full, so that the next one is too: sessions in use must not look idle.
redis.call('HDEL', session, '')
redis.call('HSET', session, 'at', now())
return { 'ok' }
