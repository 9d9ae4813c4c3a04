-- Changes the remote reader of a stream: attach, detach or ask. ARGV: 5 ordinal, 6 action, 7 token, 8 age.
local ordinal, action, token = ARGV[5], ARGV[6], ARGV[7]
local key = head_key(ordinal)
local head = redis.call('HMGET', key, 'r', 't', 'o', 'w', 'c', 'e')
if not head[6] or (head[5] and tonumber(head[5]) + tonumber(ARGV[8]) <= now()) then
  return { 'unknown' }
end
local reader, seen, waits, writer = head[1], head[2], head[3], head[4]
if action == 'attach' then
  redis.call('HSET', key, 'r', token, 't', '0')
  if reader and reader ~= token then
    wake(string.match(reader, '^[^/]*'), 'g', ordinal)
  end
  if writer then
    wake(writer, 'r', ordinal)
  end
  return { 'ok', redis.call('HGETALL', key) }
end
if action == 'detach' then
  if reader == token then
    redis.call('HDEL', key, 'r', 't', 'o')
    if waits and writer then
      wake(writer, 'r', ordinal)
    end
  end
  return { 'ok' }
end
if action == 'wait' and reader then
  redis.call('HSET', key, 'o', '1')
end
return { 'ok', reader or '', seen or '0' }
