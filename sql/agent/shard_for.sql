-- The shard of a key by its hash, XXH64 with seed 0, as shard_for() of the extension
-- gives it: on a shard nothing is installed. Numbers of 64 bits without a sign are kept
-- as bigint; what would overflow goes through numeric.
--
-- Called for writers by the look-up of the scope, with whatever search_path they have. A
-- SET clause would cost more than the hash, so all names are qualified; what needs
-- operators is in functions of SQL, which the planner puts in their place.

-- a * b + c, modulo 2^64. The constants are 2^127 + 2^63, which makes it positive, and
-- 2^64 and 2^63.
CREATE OR REPLACE FUNCTION shardmaster_agent.multiply(a int8, b int8, c int8) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8(((a::pg_catalog.numeric OPERATOR(pg_catalog.*) b OPERATOR(pg_catalog.+) c
                        OPERATOR(pg_catalog.+) 170141183460469231740910675752738881536::pg_catalog.numeric)
                       OPERATOR(pg_catalog.%) 18446744073709551616::pg_catalog.numeric)
                      OPERATOR(pg_catalog.-) 9223372036854775808::pg_catalog.numeric)
$agent$;

-- The highest n bits, as the lowest of a number.
CREATE OR REPLACE FUNCTION shardmaster_agent.highest(a int8, n int4) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8and(pg_catalog.int8shr(a, pg_catalog.int4mi(64, n)),
                          pg_catalog.int8not(pg_catalog.int8shl(-1, n)))
$agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.rotate(a int8, n int4) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8or(pg_catalog.int8shl(a, n), shardmaster_agent.highest(a, n))
$agent$;

-- A word of the key, times p2, rotated, times p1.
CREATE OR REPLACE FUNCTION shardmaster_agent.round(product int8) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT shardmaster_agent.multiply(shardmaster_agent.rotate(product, 31), -7046029288634856825, 0)
$agent$;

-- Modulo of a number without a sign.
CREATE OR REPLACE FUNCTION shardmaster_agent.modulo(a int8, n int4) RETURNS int4
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int4(pg_catalog.int8mod(
    pg_catalog.int8pl(pg_catalog.int8mul(pg_catalog.int8mod(shardmaster_agent.highest(a, 63), n), 2),
                      pg_catalog.int8and(a, 1)), n))
$agent$;

-- The last steps: every bit of the key changes half of the result.
CREATE OR REPLACE FUNCTION shardmaster_agent.bucket_of(hash int8, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
BEGIN
    hash := pg_catalog.int8xor(hash, shardmaster_agent.highest(hash, 31));
    hash := shardmaster_agent.multiply(hash, -4417276706812531889, 0);
    hash := pg_catalog.int8xor(hash, shardmaster_agent.highest(hash, 35));
    hash := shardmaster_agent.multiply(hash, 1609587929392839161, 0);
    hash := pg_catalog.int8xor(hash, shardmaster_agent.highest(hash, 32));
    RETURN shardmaster_agent.modulo(hash, shard_count);
END $agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.shard_for(key int8, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
DECLARE
    hash pg_catalog.int8 := shardmaster_agent.multiply(key, -4417276706812531889, 0);
BEGIN
    -- p5 + 8
    hash := pg_catalog.int8xor(shardmaster_agent.round(hash), 2870177450012600269);
    hash := shardmaster_agent.multiply(shardmaster_agent.rotate(hash, 27), -7046029288634856825, -8796714831421723037);
    RETURN shardmaster_agent.bucket_of(hash, shard_count);
END $agent$;

-- Bytes as a number, the lowest first.
CREATE OR REPLACE FUNCTION shardmaster_agent.number_at(bytes bytea, at int4, count int4) RETURNS int8
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
DECLARE
    number pg_catalog.int8 := 0;
BEGIN
    FOR i IN REVERSE pg_catalog.int4pl(at, pg_catalog.int4mi(count, 1)) .. at LOOP
        number := pg_catalog.int8pl(pg_catalog.int8shl(number, 8), pg_catalog.get_byte(bytes, i));
    END LOOP;
    RETURN number;
END $agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.shard_for_bytes(bytes bytea, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
DECLARE
    p1 CONSTANT pg_catalog.int8 := -7046029288634856825;
    p2 CONSTANT pg_catalog.int8 := -4417276706812531889;
    p3 CONSTANT pg_catalog.int8 := 1609587929392839161;
    p4 CONSTANT pg_catalog.int8 := -8796714831421723037;
    p5 CONSTANT pg_catalog.int8 := 2870177450012600261;
    size CONSTANT pg_catalog.int4 := pg_catalog.length(bytes);
    -- Of stripes of 32 bytes: 0 + p1 + p2, p2, 0, -p1.
    lanes pg_catalog.int8[] := ARRAY[6983438078262162902, p2, 0, 7046029288634856825];
    lane  pg_catalog.int8;
    hash  pg_catalog.int8;
    at    pg_catalog.int4 := 0;
BEGIN
    FOR stripe IN 1 .. pg_catalog.int4div(size, 32) LOOP
        FOR i IN 1 .. 4 LOOP
            lane := shardmaster_agent.multiply(shardmaster_agent.number_at(bytes, at, 8), p2, lanes[i]);
            lanes[i] := shardmaster_agent.round(lane);
            at := pg_catalog.int4pl(at, 8);
        END LOOP;
    END LOOP;
    IF pg_catalog.int4lt(size, 32) THEN
        hash := p5;
    ELSE
        hash := shardmaster_agent.multiply(1, shardmaster_agent.rotate(lanes[1], 1), shardmaster_agent.rotate(lanes[2], 7));
        hash := shardmaster_agent.multiply(1, hash, shardmaster_agent.rotate(lanes[3], 12));
        hash := shardmaster_agent.multiply(1, hash, shardmaster_agent.rotate(lanes[4], 18));
        FOR i IN 1 .. 4 LOOP
            lane := shardmaster_agent.multiply(lanes[i], p2, 0);
            hash := pg_catalog.int8xor(hash, shardmaster_agent.round(lane));
            hash := shardmaster_agent.multiply(hash, p1, p4);
        END LOOP;
    END IF;
    hash := shardmaster_agent.multiply(1, hash, size);
    FOR word IN 1 .. pg_catalog.int4div(pg_catalog.int4mod(size, 32), 8) LOOP
        lane := shardmaster_agent.multiply(shardmaster_agent.number_at(bytes, at, 8), p2, 0);
        hash := pg_catalog.int8xor(hash, shardmaster_agent.round(lane));
        hash := shardmaster_agent.multiply(shardmaster_agent.rotate(hash, 27), p1, p4);
        at := pg_catalog.int4pl(at, 8);
    END LOOP;
    FOR half IN 1 .. pg_catalog.int4div(pg_catalog.int4mod(size, 8), 4) LOOP
        lane := shardmaster_agent.multiply(shardmaster_agent.number_at(bytes, at, 4), p1, 0);
        hash := pg_catalog.int8xor(hash, lane);
        hash := shardmaster_agent.multiply(shardmaster_agent.rotate(hash, 23), p2, p3);
        at := pg_catalog.int4pl(at, 4);
    END LOOP;
    FOR byte IN 1 .. pg_catalog.int4mod(size, 4) LOOP
        hash := pg_catalog.int8xor(hash, shardmaster_agent.multiply(pg_catalog.get_byte(bytes, at), p5, 0));
        hash := shardmaster_agent.multiply(shardmaster_agent.rotate(hash, 11), p1, 0);
        at := pg_catalog.int4pl(at, 1);
    END LOOP;
    RETURN shardmaster_agent.bucket_of(hash, shard_count);
END $agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.shard_for(key text, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
BEGIN
    RETURN shardmaster_agent.shard_for_bytes(pg_catalog.convert_to(key, 'UTF8'), shard_count);
END $agent$;

CREATE OR REPLACE FUNCTION shardmaster_agent.shard_for(key uuid, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
BEGIN
    RETURN shardmaster_agent.shard_for_bytes(pg_catalog.uuid_send(key), shard_count);
END $agent$;
