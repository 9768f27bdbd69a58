SELECT value FROM json_each('[1,2]') -- end
