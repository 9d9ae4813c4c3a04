-- Reads the head of a stream and the entries from the one that contains event ARGV[6] on. With a token in ARGV[10], the
-- reader has seen everything up to ARGV[11], and a waiting writer may continue.
local ordinal, from, age, token = ARGV[5], ARGV[6], tonumber(ARGV[9]), ARGV[10]
local events_left, bytes_left = tonumber(ARGV[7]), tonumber(ARGV[8])
local key = head_key(ordinal)
local flat = redis.call('HGETALL', key)
if #flat == 0 then
  return { 'unknown' }
end
local head = {}
for at = 1, #flat, 2 do
  head[flat[at]] = flat[at + 1]
end
if head.c and tonumber(head.c) + age <= now() then
  return { 'unknown' }
end
if token ~= '' then
  if head.r ~= token then
    return { 'displaced' }
  end
  redis.call('HSET', key, 't', ARGV[11])
  if head.o then
    redis.call('HDEL', key, 'o')
    wake(head.w, 'r', ordinal)
  end
end
local result = { 'ok', flat }
local start, count = from .. '-0', 1
if events_left > 0 then
  local containing = redis.call('XREVRANGE', log_key(ordinal), start, '-', 'COUNT', 1)[1]
  if containing then
    start = containing[1]
  end
end
while events_left > 0 and bytes_left > 0 do
  local entries = redis.call('XRANGE', log_key(ordinal), start, '+', 'COUNT', count)
  local bytes = 0
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    -- 'n', count, 'b', bytes, 'l', last cost, 'd', blob
    result[#result + 1] = entry[1]
    result[#result + 1] = fields[8]
    events_left = events_left - tonumber(fields[2])
    bytes = bytes + tonumber(fields[4])
  end
  if #entries < count then
    break
  end
  bytes_left = bytes_left - bytes
  start = '(' .. entries[#entries][1]
  -- Estimates how many entries fit, from the average size of these.
  count = math.max(1, math.min(64, events_left, math.floor(bytes_left * #entries / bytes)))
end
return result
