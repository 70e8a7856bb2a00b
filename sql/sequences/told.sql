(SELECT string_agg(convert_from(decode(u.part, 'escape'), getdatabaseencoding()), ' ')
              FROM unnest(string_to_array(encode(g.tgargs, 'escape'), '\000')) u (part) WHERE g.tgnargs > 0)
