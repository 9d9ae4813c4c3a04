-- Creates a session and its first view. ARGV: 5 record, 6 epoch, 7 '1' if owned, 8 last broadcast, 9 ordinals of a block.
if redis.call('EXISTS', session) == 1 then
  end_session()
end
redis.call('HSET', session, 'rec', ARGV[5], 'rev', 1, 'ep', ARGV[6], 'ord', 0, 'at', now(), 'run', store_process(),
  'bcast', ARGV[8])
if ARGV[7] == '1' then
  redis.call('HSET', session, 'own', me)
end
add_view(ARGV[6])
local after, last = draw_ordinals(ARGV[9])
return { 'ok', after, last }
