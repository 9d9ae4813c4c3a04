-- Opens a view of a session. ARGV[5] is the number of ordinals in a block.
if redis.call('HEXISTS', session, 'rec') == 0 then
  return { 'gone' }
end
skip_lost_numbers()
local record = redis.call('HMGET', session, 'rec', 'rev', 'at', 'own')
local epoch = draw_epoch()
local after, last = draw_ordinals(ARGV[5])
add_view(epoch)
return { 'ok', record[1], record[2], epoch, after, last, math.max(0, now() - tonumber(record[3])), record[4] or '' }
