-- Removes mail from a mailbox. Returns 1 to exactly one caller. KEYS[1] is the mailbox, ARGV[1] the token of the mail.
local mailbox, waiting = KEYS[1], KEYS[1] .. ':w'
local id, bytes = string.match(redis.call('HGET', waiting, ARGV[1]) or '', '^(%S+) (%d+)$')
if not id then
  return { 'ok', 0 }
end
redis.call('HDEL', waiting, ARGV[1])
redis.call('XDEL', mailbox, id)
redis.call('HINCRBY', waiting, 'bytes', -bytes)
return { 'ok', 1 }
