-- Reads the record of a session.
local record = redis.call('HMGET', session, 'rec', 'rev', 'ep', 'hw', 'at', 'own')
if not record[1] then
  return { 'gone' }
end
return { 'ok', record[1], record[2], record[3], record[4] or '0', math.max(0, now() - tonumber(record[5])),
  record[6] or '' }
