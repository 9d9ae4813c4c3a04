-- Moves waiting messages to a stream of this node, if it is the newest listener. ARGV: 5 ordinal, 6 epoch, 7 number of the
-- first message, 8 maximum messages, 9 maximum bytes, 10 info, 11 and 12 limits of the stream, 13 age.
local ordinal, epoch, first = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local max_messages, max_bytes, info = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local queue, keys = session .. ':q', session .. ':qc'
local queued = redis.call('HMGET', session, 'rev', 'qb')
if not queued[1] then
  return { 'gone' }
end
local stream = load_stream(ordinal)
if not stream.exists and info == '' then
  return { 'unknown' }
end
local top = redis.call('ZREVRANGE', session .. ':g', 0, 0)[1]
local is_top = top == ordinal .. ':' .. me

if stream.epoch == epoch and stream.last and stream.last >= first then
  -- A repetition after a lost acknowledgement: this writer has one append in flight, so the entry is its own.
  local entry = redis.call('XRANGE', stream.log, entry_id(first), entry_id(first))[1]
  if entry then
    return { 'ok', is_top and redis.call('LLEN', queue) or 0, fields_of(entry).d }
  end
end
local refused = refusal(stream, epoch, first)
if refused or first < 1 then
  return refused or { 'conflict', stream.epoch or epoch, '' }
end
local waiting = redis.call('LRANGE', queue, 0, max_messages - 1)
if not is_top or #waiting == 0 then
  return { 'ok', 0, '' }
end

local blobs, count, bytes, cost, last_cost = {}, 0, 0, 0, 0
for _, message in ipairs(waiting) do
  local size = struct.unpack('>I2', message)
  local payload = string.sub(message, 3 + size)
  if count > 0 and bytes + #payload > max_bytes then
    break
  end
  if size > 0 then
    redis.call('HDEL', keys, string.sub(message, 3, 2 + size))
  end
  count, bytes, last_cost = count + 1, bytes + #payload, #payload + EVENT_COST
  cost = cost + last_cost
  blobs[count] = struct.pack('>I4', #payload) .. payload
end
redis.call('LTRIM', queue, count, -1)
redis.call('HSET', session, 'qb', tonumber(queued[2] or 0) - bytes)
if not stream.exists then
  create_head(stream, info)
end
local blob = table.concat(blobs)
add_entry(stream, first, count, cost, last_cost, blob)
stream.last = first + count - 1
evict(stream, tonumber(ARGV[11]), tonumber(ARGV[12]))
save_stream(stream, epoch, tonumber(ARGV[13]))
return { 'ok', redis.call('LLEN', queue), blob }
