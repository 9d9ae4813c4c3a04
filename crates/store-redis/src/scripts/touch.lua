if redis.call('EXISTS', session) == 0 then
  return { 'gone' }
end
-- Redis allows this write when its memory is full, and then also the next one. Sessions in use must not look idle.
redis.call('HDEL', session, '')
redis.call('HSET', session, 'at', now())
return { 'ok' }
