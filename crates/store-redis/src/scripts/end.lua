return { 'ok', end_session() }
