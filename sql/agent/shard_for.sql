-- The shard of a key by its hash, XXH64 with seed 0, as shard_for() of the extension
-- gives it: on a shard nothing is installed. Numbers of 64 bits without a sign are kept
-- as bigint; what would overflow goes through numeric. Called for writers by the look-up
-- of the scope, with whatever search_path they have, hence the SET clauses.

-- a * b + c, modulo 2^64. The constants are 2^127 + 2^63, which makes it positive, and
-- 2^64 and 2^63.
CREATE OR REPLACE FUNCTION shardmaster_agent.multiply(a int8, b int8, c int8) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8(((a::pg_catalog.numeric OPERATOR(pg_catalog.*) b OPERATOR(pg_catalog.+) c
                        OPERATOR(pg_catalog.+) 170141183460469231740910675752738881536::pg_catalog.numeric)
                       OPERATOR(pg_catalog.%) 18446744073709551616::pg_catalog.numeric)
                      OPERATOR(pg_catalog.-) 9223372036854775808::pg_catalog.numeric)
$agent$;

-- The last steps: every bit of the key changes half of the result.
CREATE OR REPLACE FUNCTION shardmaster_agent.bucket_of(hash int8, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $agent$
BEGIN
    hash := hash # ((hash >> 33) & 2147483647);
    hash := shardmaster_agent.multiply(hash, -4417276706812531889, 0);
    hash := hash # ((hash >> 29) & 34359738367);
    hash := shardmaster_agent.multiply(hash, 1609587929392839161, 0);
    hash := hash # ((hash >> 32) & 4294967295);
    -- Modulo of a number without a sign.
    RETURN ((((hash >> 1) & 9223372036854775807) % shard_count) * 2 + (hash & 1)) % shard_count;
END $agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.shard_for(key int8, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $agent$
DECLARE
    lane int8 := shardmaster_agent.multiply(key, -4417276706812531889, 0);
    hash int8;
BEGIN
    lane := (lane << 31) | ((lane >> 33) & 2147483647);
    hash := shardmaster_agent.multiply(lane, -7046029288634856825, 0) # 2870177450012600269;
    hash := (hash << 27) | ((hash >> 37) & 134217727);
    hash := shardmaster_agent.multiply(hash, -7046029288634856825, -8796714831421723037);
    RETURN shardmaster_agent.bucket_of(hash, shard_count);
END $agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.shard_for_bytes(bytes bytea, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $agent$
DECLARE
    p1 CONSTANT int8 := -7046029288634856825;
    p2 CONSTANT int8 := -4417276706812531889;
    p3 CONSTANT int8 := 1609587929392839161;
    p4 CONSTANT int8 := -8796714831421723037;
    p5 CONSTANT int8 := 2870177450012600261;
    size CONSTANT int4 := length(bytes);
    -- Of stripes of 32 bytes: 0 + p1 + p2, p2, 0, -p1.
    lanes int8[] := ARRAY[6983438078262162902, p2, 0, 7046029288634856825];
    lane  int8;
    hash  int8;
    at    int4 := 0;
BEGIN
    WHILE at + 32 <= size LOOP
        FOR i IN 1 .. 4 LOOP
            lane := shardmaster_agent.multiply(shardmaster_agent.eight_bytes(bytes, at), p2, lanes[i]);
            lane := (lane << 31) | ((lane >> 33) & 2147483647);
            lanes[i] := shardmaster_agent.multiply(lane, p1, 0);
            at := at + 8;
        END LOOP;
    END LOOP;
    IF size < 32 THEN
        hash := p5;
    ELSE
        hash := shardmaster_agent.multiply(1, (lanes[1] << 1) | ((lanes[1] >> 63) & 1),
                                           (lanes[2] << 7) | ((lanes[2] >> 57) & 127));
        hash := shardmaster_agent.multiply(1, hash, (lanes[3] << 12) | ((lanes[3] >> 52) & 4095));
        hash := shardmaster_agent.multiply(1, hash, (lanes[4] << 18) | ((lanes[4] >> 46) & 262143));
        FOR i IN 1 .. 4 LOOP
            lane := shardmaster_agent.multiply(lanes[i], p2, 0);
            lane := (lane << 31) | ((lane >> 33) & 2147483647);
            hash := hash # shardmaster_agent.multiply(lane, p1, 0);
            hash := shardmaster_agent.multiply(hash, p1, p4);
        END LOOP;
    END IF;
    hash := shardmaster_agent.multiply(1, hash, size);
    WHILE at + 8 <= size LOOP
        lane := shardmaster_agent.multiply(shardmaster_agent.eight_bytes(bytes, at), p2, 0);
        lane := (lane << 31) | ((lane >> 33) & 2147483647);
        hash := hash # shardmaster_agent.multiply(lane, p1, 0);
        hash := (hash << 27) | ((hash >> 37) & 134217727);
        hash := shardmaster_agent.multiply(hash, p1, p4);
        at := at + 8;
    END LOOP;
    IF at + 4 <= size THEN
        lane := get_byte(bytes, at)::int8 | (get_byte(bytes, at + 1)::int8 << 8)
              | (get_byte(bytes, at + 2)::int8 << 16) | (get_byte(bytes, at + 3)::int8 << 24);
        hash := hash # shardmaster_agent.multiply(lane, p1, 0);
        hash := (hash << 23) | ((hash >> 41) & 8388607);
        hash := shardmaster_agent.multiply(hash, p2, p3);
        at := at + 4;
    END IF;
    WHILE at < size LOOP
        hash := hash # shardmaster_agent.multiply(get_byte(bytes, at), p5, 0);
        hash := (hash << 11) | ((hash >> 53) & 2047);
        hash := shardmaster_agent.multiply(hash, p1, 0);
        at := at + 1;
    END LOOP;
    RETURN shardmaster_agent.bucket_of(hash, shard_count);
END $agent$;

-- Eight bytes as a number, the lowest first.
CREATE OR REPLACE FUNCTION shardmaster_agent.eight_bytes(bytes bytea, at int4) RETURNS int8
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $agent$
BEGIN
    RETURN get_byte(bytes, at)::int8 | (get_byte(bytes, at + 1)::int8 << 8)
         | (get_byte(bytes, at + 2)::int8 << 16) | (get_byte(bytes, at + 3)::int8 << 24)
         | (get_byte(bytes, at + 4)::int8 << 32) | (get_byte(bytes, at + 5)::int8 << 40)
         | (get_byte(bytes, at + 6)::int8 << 48) | (get_byte(bytes, at + 7)::int8 << 56);
END $agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.shard_for(key text, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $agent$
BEGIN
    RETURN shardmaster_agent.shard_for_bytes(convert_to(key, 'UTF8'), shard_count);
END $agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.shard_for(key uuid, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $agent$
BEGIN
    RETURN shardmaster_agent.shard_for_bytes(uuid_send(key), shard_count);
END $agent$;
