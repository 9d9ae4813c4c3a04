-- Changes of a stream, for `append` and `bind`. The rules are those of `rethread_proto::stream`: `fence` and `retention`.
-- EVENT_COST, the cost of an event without its payload, is defined before this file.

-- The fields of a head.
local FIELDS = { 'e', 'n', 'c', 'm', 'b', 'of', 'oc', 'ob', 'ol', 'nf', 'pn', 'k', 'r', 't', 'g', 'w' }

local function load_stream(ordinal)
  local values = redis.call('HMGET', head_key(ordinal), unpack(FIELDS))
  local stream = { ordinal = ordinal, head = head_key(ordinal), log = log_key(ordinal) }
  stream.exists = values[1] ~= false
  stream.epoch = tonumber(values[1] or nil)
  stream.last = tonumber(values[2] or nil)
  stream.sealed = values[3] ~= false
  stream.held = tonumber(values[4] or 0)
  stream.bytes = tonumber(values[5] or 0)
  stream.oldest = tonumber(values[6] or nil)
  stream.oldest_count = tonumber(values[7] or 0)
  stream.oldest_bytes = tonumber(values[8] or 0)
  stream.oldest_last_cost = tonumber(values[9] or 0)
  stream.newest = tonumber(values[10] or nil)
  stream.pins = tonumber(values[11] or 0)
  stream.watchers = values[12] or ''
  stream.reader = values[13] or ''
  stream.seen = values[14] or '0'
  stream.evicted = tonumber(values[15] or 0)
  return stream
end

-- The first number of an entry is its id.
local function entry_id(first)
  return string.format('%.0f-0', first)
end

-- Whether the store lacks events up to `gap`, which is nil if the writer knows of no loss.
local function lacks(stream, gap)
  return gap and (not stream.last or gap > stream.last)
end

-- The refusal of a batch that does not continue the stream, or nil. `first` is nil for a batch without events.
local function refusal(stream, epoch, first, gap)
  if stream.sealed then
    return { 'sealed' }
  end
  local before = stream.last
  if lacks(stream, gap) then
    before = gap
  end
  local next = before and before + 1 or 0
  local follows = not first or first == next or (not before and first <= 1)
  local stored = stream.epoch or epoch
  if epoch < stored or not follows then
    return { 'conflict', stored, stream.last and string.format('%.0f', stream.last) or '' }
  end
end

-- Creates the head of a new stream and its place in the index. `high_water` is the session's highest ordinal so far.
local function create_head(stream, info)
  redis.call('HSET', stream.head, 'f', info)
  redis.call('ZADD', session .. ':x', '+inf', stream.ordinal)
  local highest, ordinal = redis.call('HGET', session, 'hw') or '0', stream.ordinal
  if #ordinal > #highest or (#ordinal == #highest and ordinal > highest) then
    redis.call('HSET', session, 'hw', ordinal)
  end
end

-- Adds one entry with `count` events.
local function add_entry(stream, first, count, bytes, last_cost, blob)
  redis.call('XADD', stream.log, entry_id(first), 'n', count, 'b', bytes, 'l', last_cost, 'd', blob)
  if not stream.oldest then
    stream.oldest, stream.oldest_count = first, count
    stream.oldest_bytes, stream.oldest_last_cost = bytes, last_cost
  end
  stream.newest = first
  stream.held, stream.bytes = stream.held + count, stream.bytes + bytes
end

local function count_eviction(stream, seq, cost)
  stream.held, stream.bytes = stream.held - 1, stream.bytes - cost
  stream.evicted = math.max(stream.evicted, seq)
end

-- Removes a pin. A pinned event that outlived its entry is evicted with it.
local function release_pin(stream, seq)
  local field = 'p' .. seq
  local pin = redis.call('HGET', stream.head, field)
  if pin then
    redis.call('HDEL', stream.head, field)
    stream.pins = stream.pins - 1
    local kind = string.sub(pin, 1, 1)
    if kind == 'Q' or kind == 'A' then
      count_eviction(stream, tonumber(seq), #pin - 1 + EVENT_COST)
    end
  end
end

-- A sealed stream has no open questions.
local function release_questions(stream)
  if stream.pins > 0 then
    for _, field in ipairs(redis.call('HKEYS', stream.head)) do
      local seq = string.match(field, '^p(%d+)$')
      if seq then
        local kind = redis.call('HGET', stream.head, field)
        kind = string.sub(kind, 1, 1)
        if kind == 'q' or kind == 'Q' then
          release_pin(stream, seq)
        end
      end
    end
  end
end

local function fields_of(entry)
  local fields = {}
  for at = 1, #entry[2], 2 do
    fields[entry[2][at]] = entry[2][at + 1]
  end
  return fields
end

-- Drops the oldest entry. Its pinned events move into the head.
local function drop_oldest(stream)
  local id = entry_id(stream.oldest)
  if stream.pins == 0 then
    stream.held, stream.bytes = stream.held - stream.oldest_count, stream.bytes - stream.oldest_bytes
    stream.evicted = math.max(stream.evicted, stream.oldest + stream.oldest_count - 1)
  else
    local blob = fields_of(redis.call('XRANGE', stream.log, id, id)[1]).d
    local at, seq = 1, stream.oldest
    while at <= #blob do
      local length
      length, at = struct.unpack('>I4', blob, at)
      local field = string.format('p%.0f', seq)
      local kind = redis.call('HGET', stream.head, field)
      if kind then
        redis.call('HSET', stream.head, field, string.upper(kind) .. string.sub(blob, at, at + length - 1))
      else
        count_eviction(stream, seq, length + EVENT_COST)
      end
      at, seq = at + length, seq + 1
    end
  end
  redis.call('XDEL', stream.log, id)
  local next = redis.call('XRANGE', stream.log, '-', '+', 'COUNT', 1)[1]
  local fields = fields_of(next)
  stream.oldest = tonumber(string.match(next[1], '^%d+'))
  stream.oldest_count, stream.oldest_bytes = tonumber(fields.n), tonumber(fields.b)
  stream.oldest_last_cost = tonumber(fields.l)
end

-- Drops the oldest entries while every event of the oldest one is beyond the limits. An entry that is partly within them
-- stays, so no event is lost that `retention` would retain. The newest entry always stays.
local function evict(stream, max_events, max_bytes)
  while stream.oldest and stream.oldest ~= stream.newest
    and (stream.held - stream.oldest_count >= max_events
      or stream.bytes - stream.oldest_bytes + stream.oldest_last_cost > max_bytes) do
    drop_oldest(stream)
  end
end

-- Beyond 1,024 ended streams of the session, forgets the first ones. Key expiry removes streams by age.
local function seal(stream, age)
  local time = now()
  redis.call('HSET', stream.head, 'c', time)
  local index = session .. ':x'
  redis.call('ZADD', index, time, stream.ordinal)
  redis.call('ZREMRANGEBYSCORE', index, '-inf', time - age)
  local ended = redis.call('ZCOUNT', index, '-inf', '(+inf')
  if ended > 1024 then
    for _, ordinal in ipairs(redis.call('ZRANGE', index, 0, ended - 1025)) do
      redis.call('UNLINK', head_key(ordinal), log_key(ordinal))
      redis.call('ZREM', index, ordinal)
    end
  end
end

-- Writes the counters of a stream back, and wakes its watchers.
local function save_stream(stream, epoch, age)
  local head = stream.head
  local fields = { 'e', epoch, 'w', me, 'm', stream.held, 'b', stream.bytes, 'pn', stream.pins, 'g', stream.evicted }
  local optional = { n = stream.last, of = stream.oldest, nf = stream.newest }
  if stream.oldest then
    optional.oc, optional.ob, optional.ol = stream.oldest_count, stream.oldest_bytes, stream.oldest_last_cost
  end
  for name, value in pairs(optional) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  redis.call('HSET', head, unpack(fields))
  if stream.seals then
    redis.call('PEXPIRE', head, age)
    redis.call('PEXPIRE', stream.log, age)
  end
  wake_watchers(stream.ordinal, stream.watchers)
end
