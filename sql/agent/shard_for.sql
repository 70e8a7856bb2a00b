-- The shard of a key by its hash, XXH64 with seed 0, as shard_for() of the extension
-- gives it: on a shard nothing is installed. Numbers of 64 bits without a sign are kept
-- as bigint, and computed in halves, since what overflows is an error.
--
-- Called for writers by the look-up of the scope, with whatever search_path they have. A
-- SET clause would cost more than the hash, so all names are qualified; what needs
-- operators is in functions of SQL, which the planner puts in their place. It does so only
-- for arguments that cost little, as variables do: what is computed by a loop is kept in one.

-- a * b + c, modulo 2^64. With b = high * 2^32 + low, low from -2^31 to before 2^31, no
-- product and no sum leaves the 64 bits: the highest is that of the lower half of a with
-- low, and the lower half of c. Of a constant b the planner computes both halves.
CREATE OR REPLACE FUNCTION {schema}.multiply(a int8, b int8, c int8) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8or(
    pg_catalog.int8shl(
        pg_catalog.int8pl(
            pg_catalog.int8pl(
                pg_catalog.int8and(
                    pg_catalog.int8mul(pg_catalog.int8and(a, 4294967295),
                                       pg_catalog.int8pl(pg_catalog.int8shr(b, 32), pg_catalog.int8and(pg_catalog.int8shr(b, 31), 1))),
                    4294967295),
                pg_catalog.int8mul(pg_catalog.int8shr(a, 32),
                                   pg_catalog.int8mi(pg_catalog.int8and(b, 2147483647), pg_catalog.int8and(b, 2147483648)))),
            pg_catalog.int8pl(
                pg_catalog.int8shr(c, 32),
                pg_catalog.int8shr(
                    pg_catalog.int8pl(
                        pg_catalog.int8mul(pg_catalog.int8and(a, 4294967295),
                                           pg_catalog.int8mi(pg_catalog.int8and(b, 2147483647), pg_catalog.int8and(b, 2147483648))),
                        pg_catalog.int8and(c, 4294967295)),
                    32))),
        32),
    pg_catalog.int8and(
        pg_catalog.int8pl(
            pg_catalog.int8mul(pg_catalog.int8and(a, 4294967295),
                               pg_catalog.int8mi(pg_catalog.int8and(b, 2147483647), pg_catalog.int8and(b, 2147483648))),
            pg_catalog.int8and(c, 4294967295)),
        4294967295))
$agent$;

-- The highest n bits, as the lowest of a number.
CREATE OR REPLACE FUNCTION {schema}.highest(a int8, n int4) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8and(pg_catalog.int8shr(a, pg_catalog.int4mi(64, n)),
                          pg_catalog.int8not(pg_catalog.int8shl(-1, n)))
$agent$;

CREATE OR REPLACE FUNCTION {schema}.rotate(a int8, n int4) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8or(pg_catalog.int8shl(a, n), {schema}.highest(a, n))
$agent$;

-- A word of the key, times p2, rotated, times p1.
CREATE OR REPLACE FUNCTION {schema}.round(product int8) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT {schema}.multiply({schema}.rotate(product, 31), -7046029288634856825, 0)
$agent$;

-- Modulo of a number without a sign.
CREATE OR REPLACE FUNCTION {schema}.modulo(a int8, n int4) RETURNS int4
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int4(pg_catalog.int8mod(
    pg_catalog.int8pl(pg_catalog.int8mul(pg_catalog.int8mod({schema}.highest(a, 63), n), 2),
                      pg_catalog.int8and(a, 1)), n))
$agent$;

-- The last steps: every bit of the key changes half of the result.
CREATE OR REPLACE FUNCTION {schema}.bucket_of(hash int8, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
BEGIN
    hash := pg_catalog.int8xor(hash, {schema}.highest(hash, 31));
    hash := {schema}.multiply(hash, -4417276706812531889, 0);
    hash := pg_catalog.int8xor(hash, {schema}.highest(hash, 35));
    hash := {schema}.multiply(hash, 1609587929392839161, 0);
    hash := pg_catalog.int8xor(hash, {schema}.highest(hash, 32));
    RETURN {schema}.modulo(hash, shard_count);
END $agent$;

-- The last steps are those of bucket_of(), whose call would cost a third more.
CREATE OR REPLACE FUNCTION {schema}.shard_for(key int8, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
DECLARE
    hash pg_catalog.int8 := {schema}.multiply(key, -4417276706812531889, 0);
BEGIN
    -- p5 + 8
    hash := pg_catalog.int8xor({schema}.round(hash), 2870177450012600269);
    hash := {schema}.multiply({schema}.rotate(hash, 27), -7046029288634856825, -8796714831421723037);
    hash := pg_catalog.int8xor(hash, {schema}.highest(hash, 31));
    hash := {schema}.multiply(hash, -4417276706812531889, 0);
    hash := pg_catalog.int8xor(hash, {schema}.highest(hash, 35));
    hash := {schema}.multiply(hash, 1609587929392839161, 0);
    hash := pg_catalog.int8xor(hash, {schema}.highest(hash, 32));
    RETURN {schema}.modulo(hash, shard_count);
END $agent$;

-- Four bytes as a number, the lowest first.
CREATE OR REPLACE FUNCTION {schema}.half_at(bytes bytea, at int4) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8or(
    pg_catalog.int8or(pg_catalog.get_byte(bytes, at),
                      pg_catalog.int8shl(pg_catalog.get_byte(bytes, pg_catalog.int4pl(at, 1)), 8)),
    pg_catalog.int8or(pg_catalog.int8shl(pg_catalog.get_byte(bytes, pg_catalog.int4pl(at, 2)), 16),
                      pg_catalog.int8shl(pg_catalog.get_byte(bytes, pg_catalog.int4pl(at, 3)), 24)))
$agent$;

-- Eight of them.
CREATE OR REPLACE FUNCTION {schema}.word_at(bytes bytea, at int4) RETURNS int8
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
SELECT pg_catalog.int8or({schema}.half_at(bytes, at),
                         pg_catalog.int8shl({schema}.half_at(bytes, pg_catalog.int4pl(at, 4)), 32))
$agent$;

-- The constants stand where they are used, since the planner knows nothing of variables:
-- p1 = -7046029288634856825, p2 = -4417276706812531889, p3 = 1609587929392839161,
-- p4 = -8796714831421723037, p5 = 2870177450012600261.
CREATE OR REPLACE FUNCTION {schema}.shard_for_bytes(bytes bytea, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
DECLARE
    size   CONSTANT pg_catalog.int4 := pg_catalog.length(bytes);
    -- Of stripes of 32 bytes: 0 + p1 + p2, p2, 0, -p1.
    lanes  pg_catalog.int8[] := ARRAY[6983438078262162902, -4417276706812531889, 0, 7046029288634856825];
    lane   pg_catalog.int8;
    number pg_catalog.int8;
    turns  CONSTANT pg_catalog.int4[] := ARRAY[1, 7, 12, 18];
    hash   pg_catalog.int8;
    at     pg_catalog.int4 := 0;
BEGIN
    FOR stripe IN 1 .. pg_catalog.int4div(size, 32) LOOP
        FOR i IN 1 .. 4 LOOP
            number := {schema}.word_at(bytes, at);
            lane := lanes[i];
            lane := {schema}.multiply(number, -4417276706812531889, lane);
            lanes[i] := {schema}.round(lane);
            at := pg_catalog.int4pl(at, 8);
        END LOOP;
    END LOOP;
    IF pg_catalog.int4lt(size, 32) THEN
        hash := 2870177450012600261;
    ELSE
        hash := 0;
        FOR i IN 1 .. 4 LOOP
            lane := lanes[i];
            lane := {schema}.rotate(lane, turns[i]);
            hash := {schema}.multiply(hash, 1, lane);
        END LOOP;
        FOR i IN 1 .. 4 LOOP
            lane := lanes[i];
            lane := {schema}.multiply(lane, -4417276706812531889, 0);
            hash := pg_catalog.int8xor(hash, {schema}.round(lane));
            hash := {schema}.multiply(hash, -7046029288634856825, -8796714831421723037);
        END LOOP;
    END IF;
    hash := {schema}.multiply(hash, 1, size);
    FOR word IN 1 .. pg_catalog.int4div(pg_catalog.int4mod(size, 32), 8) LOOP
        number := {schema}.word_at(bytes, at);
        lane := {schema}.multiply(number, -4417276706812531889, 0);
        hash := pg_catalog.int8xor(hash, {schema}.round(lane));
        hash := {schema}.multiply({schema}.rotate(hash, 27), -7046029288634856825, -8796714831421723037);
        at := pg_catalog.int4pl(at, 8);
    END LOOP;
    FOR half IN 1 .. pg_catalog.int4div(pg_catalog.int4mod(size, 8), 4) LOOP
        number := {schema}.half_at(bytes, at);
        lane := {schema}.multiply(number, -7046029288634856825, 0);
        hash := pg_catalog.int8xor(hash, lane);
        hash := {schema}.multiply({schema}.rotate(hash, 23), -4417276706812531889, 1609587929392839161);
        at := pg_catalog.int4pl(at, 4);
    END LOOP;
    FOR byte IN 1 .. pg_catalog.int4mod(size, 4) LOOP
        lane := pg_catalog.get_byte(bytes, at);
        lane := {schema}.multiply(lane, 2870177450012600261, 0);
        hash := pg_catalog.int8xor(hash, lane);
        hash := {schema}.multiply({schema}.rotate(hash, 11), -7046029288634856825, 0);
        at := pg_catalog.int4pl(at, 1);
    END LOOP;
    RETURN {schema}.bucket_of(hash, shard_count);
END $agent$;

CREATE OR REPLACE FUNCTION {schema}.shard_for(key text, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
BEGIN
    RETURN {schema}.shard_for_bytes(pg_catalog.convert_to(key, 'UTF8'), shard_count);
END $agent$;

CREATE OR REPLACE FUNCTION {schema}.shard_for(key uuid, shard_count int4) RETURNS int4
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $agent$
BEGIN
    RETURN {schema}.shard_for_bytes(pg_catalog.uuid_send(key), shard_count);
END $agent$;
