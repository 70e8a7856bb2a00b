-- The key of a request in nginx: from the path, a header, or the query. Nothing where it
-- is missing or given twice: the service might take the other one.

local MOST = 100

-- One value of what nginx has collected.
local function only(values, trouble, name)
    local value = values[name]
    if trouble or type(value) ~= "string" or value == "" then
        return nil
    end
    return value
end

local sources = {}

function sources.header(name)
    local headers, trouble = ngx.req.get_headers(MOST)
    return only(headers, trouble, name)
end

function sources.query(name)
    local values, trouble = ngx.req.get_uri_args(MOST)
    return only(values, trouble, name)
end

-- The segment of this number, as the client sent it: in the decoded path a slash within
-- a key would not be told from one between segments. A path that a server would rewrite
-- has no key.
function sources.path(number)
    local path = ngx.var.request_uri:match "^[^?#]*"
    if path:sub(1, 1) ~= "/" or path:find("//", 1, true) then
        return nil
    end
    local at, key = 0, nil
    for segment in path:gmatch "/([^/]*)" do
        local decoded = segment:gsub("%%(%x%x)", function(hex)
            return string.char(tonumber(hex, 16))
        end)
        if decoded == "." or decoded == ".." then
            return nil
        end
        at = at + 1
        if at == number then
            key = decoded
        end
    end
    return key ~= "" and key or nil
end

return function(source, name)
    return sources[source](name)
end
