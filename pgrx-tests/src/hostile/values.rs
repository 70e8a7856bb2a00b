//! Arguments as SQL: plausible ones, and hostile ones.

use super::routines::Parameter;

/// Values of names, keys and numbers for parameters of these names in any routine, so that a call gets as far
/// as possible.
const BY_NAME: &[(&str, &[&str])] = &[
    ("shard_key", &["'shard_a'", "'shard_b'", "'gpu_1'"]),
    ("source", &["'shard_a'"]),
    ("target", &["'shard_b'"]),
    ("keyspace", &["'default'", "'buckets'", "'numbers'", "'ids'"]),
    ("strategy", &["'directory'", "'hash'", "'range'", "'fill_first'", "'spread'"]),
    ("shards", &["ARRAY['shard_a', 'shard_b']", "NULL"]),
    ("buckets", &["8"]),
    ("key_type", &["'text'::regtype", "'bigint'::regtype", "'uuid'::regtype"]),
    ("key", &["'moves'", "'7'"]),
    ("keys", &["ARRAY['moves', 'stays']"]),
    ("tenants", &["ARRAY['stays']", "ARRAY['0', '1']"]),
    ("tenant", &["'stays'", "'new'"]),
    ("tenant_id", &["'stays'"]),
    ("intent", &["'read'", "'write'"]),
    ("lower", &["'10'", "NULL"]),
    ("upper", &["'20'", "NULL"]),
    ("by", &["'rows'", "'keys'"]),
    ("alias", &["'north'", "'south'"]),
    ("credential_alias", &["NULL", "'north'"]),
    ("auth_kind", &["NULL", "'password'", "'libpq'", "'token_file'"]),
    ("secret", &["'{\"password\": \"x\"}'", "'{\"file\": \"/nowhere\"}'"]),
    ("kind", &["'gpu'", "'postgres'"]),
    ("conninfo", &["NULL", "'host=/nowhere dbname=app'"]),
    ("client_conninfo", &["NULL", "'host=a.example'"]),
    ("namespace", &["'public'"]),
    ("status", &["'active'", "'draining'", "'disabled'"]),
    ("capacity", &["100", "NULL"]),
    ("address", &["'10.0.0.1:80'"]),
    ("table_name", &["'items'", "'public.items'"]),
    ("shard_by", &["'tenant'"]),
    ("column_name", &["'val'"]),
    ("expression", &["'upper(val)'", "NULL"]),
    ("split_id", &["1", "2", "3"]),
    ("phase", &["'planning'", "'completed'"]),
    ("until", &["'completed'"]),
    ("timeout", &["'1 ms'"]),
    ("version", &["1"]),
    ("bucket", &["1"]),
    ("gateway", &["'nginx'", "'pgbouncer'"]),
    ("key_from", &["'header:X-Shard-Key'", "'cookie:key'"]),
    ("listen", &["'127.0.0.1:8080'"]),
    ("reservation_id", &["1", "2"]),
    ("resource_id", &["'r'"]),
    ("logical_key", &["'held'", "'new'"]),
    ("lease", &["'1 min'"]),
    ("role", &["'nobody'"]),
    ("level", &["'client'", "'admin'"]),
    ("statement", &["'GRANT EXECUTE ON ROUTINE %s TO %I'"]),
    ("reason", &["'because'", "NULL"]),
    ("description", &["'moved'", "NULL"]),
];

/// Texts with a meaning somewhere: in SQL, templates, formats, shells, configurations and terminals; and the
/// longest text.
const TEXTS: &[&str] = &[
    "''",
    "' '",
    "repeat('x', 1048576)",
    "repeat('y', 63)",
    "repeat('y', 64)",
    "repeat('ü', 32)",
    "repeat('(', 100000)",
    "repeat('''', 5000)",
    "'a''; SELECT 1/0 AS pwned; --'",
    "'$$ $agent$ $1'",
    "'\"'",
    "'\\'",
    "E'a\\nb\\r\\tc'",
    "E'\\x01\\x1b[2J'",
    "'%s%n%I%%'",
    "'{other_shard}{}'",
    "U&'\\202E\\200B\\FF07\\0301'",
    "'[,)'",
    "'[10,20)'",
    "'-1'",
    "'9999999999999999999999999'",
    "'NaN'",
    "'00000000-0000-0000-0000-000000000000'",
    "'*'",
    "'header:'",
    "'host=a host=b port=0'",
    "'postgresql://[::1'",
    "'unix:/x'",
    "'[::1]:70000'",
    "'default'",
    "'pg_catalog.pg_class'",
];

/// Numbers at the limits of their types.
const BIGINTS: &[&str] =
    &["'-9223372036854775808'", "9223372036854775807", "0", "-1", "2147483648", "4611686018427387904"];
const INTEGERS: &[&str] = &["'-2147483648'", "2147483647", "0", "-1", "1000000"];
const INTERVALS: &[&str] = &[
    "'0'",
    "'-1 s'",
    "'1 us'",
    "'178000000 years'",
    "'-178000000 years'",
    "make_interval(months => 2147483647, days => 2147483647)",
    "make_interval(months => -2147483647, days => 2147483647, secs => 9e12)",
];
const TIMES: &[&str] =
    &["'infinity'", "'-infinity'", "'4713-01-01 00:00 BC'", "'294276-12-31 23:59:59.999999'", "'epoch'"];
const ARRAYS: &[&str] = &[
    "'{}'",
    "ARRAY[NULL]",
    "ARRAY['moves', NULL]",
    "'{{a,b},{c,d}}'",
    "'[5:6]={a,b}'",
    "array_fill('k'::text, ARRAY[100000])",
    "(SELECT array_agg('k' || i) FROM generate_series(1, 100000) i)",
    "ARRAY[repeat('x', 1048576)]",
    "ARRAY['', '''', '$$', '{x}', E'\\n', '[1,2)']",
];
const NUMBER_ARRAYS: &[&str] = &[
    "'{7}'",
    "'{}'",
    "ARRAY[NULL]",
    "'{1,1}'",
    "'{{1,2},{3,4}}'",
    "'[5:6]={1,2}'",
    "'{9223372036854775807,-9223372036854775808}'",
    "(SELECT array_agg(i) FROM generate_series(1, 100000) i)",
];
const UUID_ARRAYS: &[&str] = &[
    "ARRAY['00000000-0000-0000-0000-000000000000']",
    "'{}'",
    "ARRAY[NULL]",
    "array_fill('ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid, ARRAY[2, 2])",
];
const TYPES: &[&str] = &[
    "0::oid::regtype",
    "4294967295::oid::regtype",
    "'record'::regtype",
    "'anyelement'::regtype",
    "'internal'::regtype",
    "'cstring'::regtype",
    "'void'::regtype",
    "'unknown'::regtype",
    "'text[]'::regtype",
    "'name'::regtype",
    "'pg_class'::regtype",
    "'float8'::regtype",
    "'char(3)'::regtype",
];
const OBJECT_NUMBERS: &[&str] = &["0", "4294967295", "'pg_foreign_table'::regclass"];
const UUIDS: &[&str] = &["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"];
const BYTES: &[&str] = &["''", "'\\x00'", "decode(repeat('ff', 1048576), 'hex')"];
const OBJECTS: &[&str] = &[
    "'null'",
    "'7'",
    "'\"password\"'",
    "'[]'",
    "'[{\"password\": \"x\"}]'",
    "'{}'",
    "'{\"password\": null}'",
    "'{\"password\": {\"password\": \"x\"}}'",
    "'{\"\": \"\", \"password\": \"x\"}'",
    "jsonb_build_object('password', repeat('x', 1048576))",
    "jsonb_build_object(repeat('x', 1048576), 'password')",
    "(SELECT jsonb_object_agg(i, i) FROM generate_series(1, 10000) i)",
    "(repeat('[', 3000) || repeat(']', 3000))",
];
const SPANS: &[&str] = &["'empty'", "'(,)'", "'[\\x00,\\x01)'"];

const STEPS: &[&str] = &[
    "'(derive,orders,tenant,{order_id},,{},,,,,)'",
    "'(identify,\"a\"\"; b\",,{},,{},,,,,)'",
    "'(table,orders,,{NULL},,{},global,text,,,)'",
    "'(,,,,,,,,,,)'",
];

/// Ways in which a transaction may begin, and settings of its session.
pub const CONTEXTS: &[&str] = &[
    "BEGIN",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "BEGIN READ ONLY",
    "BEGIN; SET LOCAL search_path = pg_temp, pg_catalog",
    "BEGIN; SET LOCAL client_encoding = LATIN1",
    "BEGIN; SET LOCAL standard_conforming_strings = off; SET LOCAL bytea_output = escape",
    "BEGIN; SET LOCAL DateStyle = 'SQL, DMY'; SET LOCAL IntervalStyle = sql_standard; SET LOCAL TimeZone = 'Asia/Kathmandu'",
    "BEGIN; SET LOCAL work_mem = '64kB'; SET LOCAL lock_timeout = 1",
    "BEGIN; SET LOCAL shardmaster.route_cache_size = 0; SET LOCAL shardmaster.route_wait_timeout = 0",
    "BEGIN; SET LOCAL session_replication_role = origin; SET LOCAL row_security = off",
    "BEGIN; SAVEPOINT s",
];

/// Returns hostile values for a parameter. An empty list means that its type is unknown here.
pub fn hostile(parameter: &Parameter) -> Vec<String> {
    let values = match parameter.type_name.as_str() {
        "text" | "name" => TEXTS,
        "bigint" => BIGINTS,
        "integer" => INTEGERS,
        "interval" => INTERVALS,
        "timestamp with time zone" => TIMES,
        "text[]" => ARRAYS,
        "bigint[]" => NUMBER_ARRAYS,
        "uuid[]" => UUID_ARRAYS,
        "regtype" => TYPES,
        "oid" => OBJECT_NUMBERS,
        "oid[]" => &["'{}'", "'{0,1259,NULL}'"],
        "uuid" => UUIDS,
        "jsonb" => OBJECTS,
        "bytea" => BYTES,
        "boolean" => &["true", "false"],
        "shardmaster.adoption_step" => STEPS,
        "shardmaster.key_span" => SPANS,
        "shardmaster.key_span[]" => &["'{}'", "'{\"(,)\",empty,NULL}'"],
        _ => return Vec::new(),
    };
    values.iter().chain(&["NULL"]).map(|value| cast(value, parameter)).collect()
}

/// Returns plausible values. The first one fits best.
pub fn plausible(parameter: &Parameter) -> Vec<String> {
    let is_time = parameter.type_name.starts_with("timestamp");
    // Only keys of type text have names.
    let is_key = ["key", "keys", "tenant"].contains(&parameter.name.as_str());
    let has_names = !is_time && (!is_key || parameter.type_name.starts_with("text"));
    if let Some((_, values)) = BY_NAME.iter().find(|(name, _)| *name == parameter.name && has_names) {
        return values.iter().map(|value| cast(value, parameter)).collect();
    }
    hostile(parameter).into_iter().take(1).collect()
}

fn cast(value: &str, parameter: &Parameter) -> String {
    format!("{value}::{}", parameter.type_name)
}
