//! Statements of functions that set values: columns of a record or of a table, by counting rows, or by a text that is
//! run.

use super::doings::Doings;
use super::tokens::TextToken::{self, Sign};
use super::tokens::{RECORD, assigned, begins, bounds, joins, words};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

/// Functions that make a value of their arguments, or a globally unique one, and words that are not names of
/// variables.
const PLAIN: &str = " abs age array array_agg array_append array_length array_to_string btrim bytea cast ceil char_length clock_timestamp coalesce concat concat_ws
 date date_part date_trunc decode digest div encode extract floor format gen_random_bytes gen_random_uuid greatest hashtext hashtextextended initcap
 jsonb_build_object json_build_object jsonb_extract_path_text least left length localtimestamp lower lpad ltrim make_date md5 mod now nullif overlay power quote_ident
 quote_literal quote_nullable random regexp_match regexp_replace repeat replace reverse right round row row_to_json rpad rtrim sha256 sha512 sign split_part sqrt
 statement_timestamp strpos substr substring to_char to_date to_hex to_json to_jsonb to_number to_timestamp transaction_timestamp translate trim trunc
 unaccent upper uuid_generate_v1 uuid_generate_v1mc uuid_generate_v4 uuid_generate_v5 uuidv4 uuidv7 shard_snowflake_id
 all and any as at begin between both by case char character collate conflict constraint current_date current_time current_timestamp current_user day declare default
 distinct do double else elsif end escape exists false for hour if ilike in insert int int2 int4 int8 integer interval into is isnull json jsonb leading like
 minute month nothing not notnull null numeric bigint smallint serial on only or overriding perform precision real return returning second select session_user set similar some symmetric
 system text then time timestamp timestamptz to trailing true update user uuid value values varchar varying when where with without year zone
 new old tg_op tg_table_name tg_table_schema tg_relname tg_name tg_when tg_level found excluded ";

/// Functions of the server that return values of their own, or that run a text.
pub const OF_SERVER: [&str; 20] = [
    "lo_creat",
    "lo_create",
    "lo_import",
    "lo_from_bytea",
    "txid_current",
    "txid_current_if_assigned",
    "pg_current_xact_id",
    "pg_sequence_last_value",
    "pg_current_wal_lsn",
    "pg_current_wal_insert_lsn",
    "pg_backend_pid",
    "pg_read_file",
    "pg_export_snapshot",
    "query_to_xml",
    "cursor_to_xml",
    "table_to_xml",
    "query_to_xml_and_xmlschema",
    "ts_stat",
    "pg_relation_size",
    "dblink",
];
pub const DRAWS: [&str; 3] = ["nextval", "currval", "setval"];
/// Functions of triggers that come with extensions, and set no columns to numbers.
pub const KNOWN_TRIGGERS: [&str; 10] = [
    "moddatetime",
    "insert_username",
    "lo_manage",
    "versioning",
    "tsvector_update_trigger",
    "tsvector_update_trigger_column",
    "suppress_redundant_updates_trigger",
    "check_primary_key",
    "check_foreign_key",
    "triggered_change_notification",
];
pub static PLAIN_WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| PLAIN.split_whitespace().collect());
const COUNTS: [&str; 4] = ["max", "count", "sum", "min"];

/// Returns columns of records that a trigger's text sets, and where; or the whole record, which it returns.
pub fn gifts(tokens: &[TextToken]) -> Vec<(String, Range<usize>)> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if let Some((name, _)) = assigned(tokens, at).filter(|(_, is_of_record)| *is_of_record) {
            found.push((name, bounds(tokens, at)));
        }
        let Some(word) = tokens[at].word() else { continue };
        let next = |ahead: usize| tokens.get(at + ahead);
        let is_field = word == "new" && next(1) == Some(&Sign('.'));
        let field = next(2).and_then(TextToken::word).filter(|_| is_field).map(str::to_owned);
        let before = at.checked_sub(1).and_then(|at| tokens[at].word()).unwrap_or_default();
        // Examples: NEW.a.b := .., NEW.a[1] := .., FOR NEW.a IN .., GET DIAGNOSTICS NEW.a = .., CALL p(NEW.a)
        let is_deeper = || matches!(next(3), Some(Sign('.' | '['))) && begins(tokens, at);
        let is_passed = || tokens[bounds(tokens, at)].iter().any(|token| token.is("call"));
        match field {
            Some(name)
                if ["for", "foreach", "diagnostics"].contains(&before) || is_deeper() || is_passed() =>
            {
                found.push((name, bounds(tokens, at)));
            }
            _ if word == "return"
                && !next(1).is_some_and(|token| token.is("query") || *token == Sign(';')) =>
            {
                found.push((RECORD.to_owned(), at..bounds(tokens, at).end));
            }
            _ => {}
        }
    }
    found
}

/// Returns the columns that a statement sets.
pub fn set_columns(statement: &[TextToken], columns: &BTreeSet<String>) -> BTreeSet<String> {
    let ends = |token: &TextToken| ["where", "from", "returning"].iter().any(|word| token.is(word));
    let mut found = BTreeSet::new();
    let sets = statement.iter().enumerate().filter(|(_, token)| token.is("set"));
    for (at, _) in sets {
        let rest = &statement[at + 1..];
        let rest = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
        for (at, token) in rest.iter().enumerate() {
            let is_first = at == 0 || matches!(rest[at - 1], Sign(',' | '('));
            let is_set = matches!(rest.get(at + 1), Some(Sign('=' | ',' | ')')));
            found.extend(
                token.word().filter(|_| is_first && is_set).and_then(|word| columns.get(word)).cloned(),
            );
        }
    }
    found
}

/// Returns tables whose rows a text changes and then reads.
pub fn counters(tokens: &[TextToken], doings: &Doings) -> BTreeSet<String> {
    let returned = (0..tokens.len()).filter(|at| tokens[*at].is("returning"));
    let read: BTreeSet<String> = returned.flat_map(|at| words(&tokens[bounds(tokens, at)])).collect();
    let is_read = |table: &String| read.contains(table) || doings.mentioned.contains(table);
    doings.counted().into_iter().filter(is_read).collect()
}

/// Returns the words of statements that count rows or take the last one.
pub fn counting(tokens: &[TextToken]) -> Vec<BTreeSet<String>> {
    let is_count = |at: &usize| {
        let counts = tokens[*at].word().is_some_and(|word| COUNTS.contains(&word));
        counts && tokens.get(at + 1) == Some(&Sign('('))
    };
    (0..tokens.len()).filter(is_count).map(|at| words(&tokens[bounds(tokens, at)])).collect()
}

/// Whether EXECUTE is a statement, or is run by a loop, a cursor or a query.
pub fn is_run(tokens: &[TextToken], at: usize) -> bool {
    let before = at.checked_sub(1).map(|at| &tokens[at]);
    let is_behind = before.is_some_and(|token| {
        ["query", "in", "for"].iter().any(|word| token.is(word)) || matches!(token, Sign('>' | '/'))
    });
    let next = tokens.get(at + 1);
    let is_right = next.is_none_or(|token| ["function", "procedure", "on"].iter().any(|word| token.is(word)));
    !is_right && (is_behind || begins(tokens, at))
}

/// Whether the text that is run is a literal.
pub fn is_literal(rest: &[TextToken]) -> bool {
    let ends = |token: &TextToken| *token == Sign(';') || token.is("using") || token.is("loop");
    let text = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
    matches!(text.first(), Some(Sign('\'' | '$'))) && !joins(text)
}

/// Whether a composed text may insert into one of some tables: by its name, or by a name that is filled in.
pub fn may_insert_into(statement: &[TextToken], is_it: impl Fn(&str) -> bool) -> bool {
    let is_into = |pair: &[TextToken]| (pair[0].is("insert") || pair[0].is("merge")) && pair[1].is("into");
    let targets = statement.windows(2).enumerate().filter(|(_, pair)| is_into(pair));
    targets.into_iter().any(|(at, _)| {
        let rest = statement.get(at + 2..).unwrap_or_default();
        let names = rest.iter().take_while(|token| token.word().is_some() || **token == Sign('.'));
        match names.filter_map(TextToken::word).take(2).collect::<Vec<_>>().as_slice() {
            [] => true,
            names => {
                names.iter().any(|name| is_it(name)) || rest.get(1) == Some(&Sign('.')) && names.len() < 2
            }
        }
    })
}
