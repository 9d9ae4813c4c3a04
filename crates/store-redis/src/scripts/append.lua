-- Appends a batch to a stream.
local ordinal, epoch = ARGV[5], tonumber(ARGV[6])
local first, last = tonumber(ARGV[7]), tonumber(ARGV[8])
local seals, gapless, gap, info = ARGV[9] == '1', ARGV[10] == '1', tonumber(ARGV[11]), ARGV[12]
local max_events, max_bytes, age = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local released, pins = ARGV[16], ARGV[17]
local count, bytes, last_cost, blob = tonumber(ARGV[18]), tonumber(ARGV[19]), tonumber(ARGV[20]), ARGV[21]

if redis.call('EXISTS', session) == 0 then
  return { 'gone' }
end
local stream = load_stream(ordinal)
if not stream.exists and info == '' then
  return { 'unknown' }
end
local stored = seals
if first then
  stored = stream.last == last
end
if stored and epoch == stream.epoch and seals == stream.sealed then
  return { 'ok', stream.reader, stream.seen }
end
local refused = refusal(stream, epoch, first, gap)
if refused then
  return refused
end
if not gapless then
  return { 'conflict', stream.epoch or epoch, stream.last and string.format('%.0f', stream.last) or '' }
end

if not stream.exists then
  create_head(stream, info)
end
if lacks(stream, gap) then
  stream.last, stream.evicted = gap, math.max(stream.evicted, gap)
end
if count > 0 then
  add_entry(stream, last - count + 1, count, bytes, last_cost, blob)
end
stream.last, stream.seals = last or stream.last, seals
for kind, seq in string.gmatch(pins, '(%a)(%d+)') do
  redis.call('HSET', stream.head, 'p' .. seq, kind)
  stream.pins = stream.pins + 1
end
for seq in string.gmatch(released, '%d+') do
  release_pin(stream, seq)
end
if seals then
  seal(stream, age)
  release_questions(stream)
end
evict(stream, max_events, max_bytes)
save_stream(stream, epoch, age)
return { 'ok', stream.reader, stream.seen }
