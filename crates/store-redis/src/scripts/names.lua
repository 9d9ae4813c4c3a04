-- The names of nodes. KEYS[1] is the set of members. A name belongs to the process that has joined under it last.
local members = KEYS[1]
local names, processes = members .. ':names', members .. ':processes'

-- The incarnations of a store are numbered: `<n>.<hex>`.
local function number_of(member)
  return tonumber(string.match(member, '^%d+'))
end

-- Whether another process has joined under the name of `member` after it. A store that has lost its last writes may have an
-- earlier process instead, which is no reason to exit.
local function is_replaced(name, member, process)
  local holder = redis.call('HGET', names, name)
  if not holder or holder == member or redis.call('HGET', processes, name) == process then
    return false
  end
  return number_of(holder) >= number_of(member)
end
