//! Texts that would like to be SQL, or something else that is obeyed. Each holds a word by
//! which it is found, wherever it gets to.

/// What no statement has outside of quotes, and what no relation is called.
pub const MARK: &str = "pwned";

/// As names of shards, keyspaces and namespaces may be.
pub const NAMES: [&str; 6] = [
    "a'; CREATE TABLE pwned_1(); --",
    "b\"; CREATE TABLE pwned_2(); --",
    "*/ CREATE TABLE pwned_3(); /*",
    "%s %I pwned_4 %% :pwned",
    "＇; pwned_5()＂ ; ] = , # e\u{301}",
    "SELECT pwned_6() AS \"x\" FROM 'y'",
];

/// As names never are.
pub const NO_NAMES: [&str; 9] = [
    "$$; CREATE TABLE pwned_7(); $$",
    "$agent$; CREATE TABLE pwned_8(); $agent$",
    "\\'; CREATE TABLE pwned_9(); --",
    "x\n; CREATE TABLE pwned_10();\n--",
    "{other_shard}{split}{keys} pwned_11",
    "`pwned_12` $(pwned)",
    "\u{202e}pwned_13\u{200b}",
    "\u{1b}[2J\u{7}pwned_14",
    "x\r\nSet-Cookie: pwned_15",
];

/// Keys, tables and columns may be all of these, and more.
const OTHERS: [&str; 10] = [
    "a',\"b\"}; CREATE TABLE pwned_16(); {",
    "\\.\nCREATE TABLE pwned_17();\n",
    "$1 $2 $pwned_18$ $ $",
    "NULL",
    "E'\\047; CREATE TABLE pwned_19(); --",
    "U&'\\0027 pwned_20",
    "[pwned_21,\")",
    "\\\\\\",
    "''\"\"'\"$$",
    "public\".\"pwned_22",
];

pub fn all() -> Vec<&'static str> {
    NAMES.into_iter().chain(NO_NAMES).chain(OTHERS).collect()
}

/// As SQL writes a name.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// As SQL writes a text, whatever is in it.
pub fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// As libpq writes a value of a connection string.
pub fn value(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
