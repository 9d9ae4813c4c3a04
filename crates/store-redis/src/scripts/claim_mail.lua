-- Removes mail from a mailbox. Returns how many of the messages were there: a message is removed by exactly one caller. KEYS[1] is
-- the mailbox. ARGV: 1 the time in milliseconds for which a token is remembered, then the tokens of the mail. Without the memory, a
-- delivery that is repeated after a claim would add the mail again.
local mailbox, waiting = KEYS[1], KEYS[1] .. ':w'
local removed = 0
for at = 2, #ARGV do
  local id, bytes = string.match(redis.call('HGET', waiting, ARGV[at]) or '', '^(%S+) (%d+)$')
  if id then
    redis.call('HDEL', waiting, ARGV[at])
    redis.call('XDEL', mailbox, id)
    redis.call('HINCRBY', waiting, 'bytes', -bytes)
    redis.call('SET', mailbox .. ':c:' .. ARGV[at], '', 'PX', ARGV[1])
    removed = removed + 1
  end
end
return { 'ok', removed }
