//! Code of other roles that a session of the mover would run: its owner, and what runs it. What follows from it is not
//! decided here.

use crate::agent::named::NamedThings;
use crate::agent::table_names::TableNames;
use crate::agent::{self, catalogs};
use crate::error::{Failure, SqlState};
use crate::remote::quote::literal;
use crate::remote::{Connection, RemoteError};
use std::sync::LazyLock;

static OWNERS: LazyLock<String> = LazyLock::new(|| {
    agent::with_reaches(
        include_str!("../../sql/check/owners.sql"),
        "ARRAY(SELECT m.oid FROM tree m)",
        "$8",
        &[],
    )
});
/// Functions of the server, or of extensions, that are not IMMUTABLE and are harmless with any arguments: they return
/// times, random values, numbers of the sequences that are checked, or texts and JSON of their arguments, or they
/// compare. All others, also those of later versions, may run what a text or a number names, or reveal what only the
/// mover may see.
pub const HARMLESS: &str = concat!(
    r"^(random(_normal)?|clock_timestamp|timeofday|nextval|gen_random_uuid|uuidv[47]|uuid_generate_v\w+",
    r"|gen_random_bytes|gen_salt|pgp_(sym|pub)_encrypt(_bytea)?",
    r"|now|(statement|transaction)_timestamp|age|date(_part|_trunc|_add|_subtract|_bin)?|extract|overlaps|in_range",
    r"|time(tz)?|timezone|timestamp(tz)?|make_timestamptz|interval_pl_timestamptz|timestamptz_(mi|pl)_interval",
    r"|(date|timestamp|timestamptz)_(cmp|eq|ne|lt|le|gt|ge)_(date|timestamp|timestamptz)",
    r"|to_(char|date|number|timestamp|json|jsonb|tsvector|tsquery|reg\w+)|(plain|phrase|websearch_)to_tsquery",
    r"|json\w*|row_to_json|array_to_(json|string)|concat(_ws)?|format(_type)?|quote_(literal|nullable)",
    r"|anytextcat|textanycat|convert(_from|_to)?|length|numeric|money|xml|xml_is_well_formed|ts_headline|ts_match_\w+",
    r"|enum_(first|last|range)|regclass|pg_typeof|pg_column_size|pg_client_encoding|getdatabaseencoding|version",
    r"|(current|session)_user|getpgusername|current_(database|schema|schemas)|inet_(client|server)_(addr|port)",
    r"|txid_current\w*|pg_current_(xact_id\w*|snapshot)|pg_backend_pid|pg_trigger_depth",
    r"|unaccent|(strict_)?(word_)?similarity(_commutator)?_op)$"
);
/// Functions of triggers that change only their row, or nothing.
const HARMLESS_TRIGGERS: &str =
    "^(suppress_redundant_updates_trigger|tsvector_update_trigger(_column)?|moddatetime|insert_username)$";

/// Code that the mover would run, and its owner.
pub struct Code {
    /// The owner's plain name.
    pub owner: String,
    what: String,
    called_by: String,
    others: u64,
}

impl Code {
    /// Returns what the code is, without what calls it.
    pub fn what(&self) -> &str {
        &self.what
    }

    pub fn text(&self) -> String {
        let others = match self.others {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        format!("{}{others}: {}", self.called_by, self.what)
    }
}

/// Returns a hint about what can be done about code of a role.
pub fn hint(shard_key: &str, owner: &str) -> String {
    if owner == "PUBLIC" {
        return "PUBLIC cannot be trusted. REVOKE CREATE ON SCHEMA ... FROM PUBLIC, or move what the expression names to a schema of its own.".to_owned();
    }
    format!(
        "SELECT shard_trust_owner({}, {}) allows the mover to run this role's code with all the mover's rights there. Otherwise change its owner to a superuser, or drop it.",
        literal(shard_key),
        literal(owner)
    )
}

/// Returns the number of a role on a shard's server.
pub fn number_of(session: &mut Connection, role: &str) -> Result<i64, Failure> {
    let rows = session.query("SELECT oid FROM pg_roles WHERE rolname = $1", &[Some(role)])?;
    rows.scalar().and_then(|number| number.parse().ok()).ok_or_else(|| {
        Failure::new(
            SqlState::parse("42704"),
            format!("role \"{role}\" does not exist on shard \"{}\"", session.shard()),
        )
        .hint("SELECT rolname FROM pg_roles there lists its roles.")
    })
}

/// The findings on a side.
#[derive(Default)]
pub struct CodeFindings {
    pub code: Vec<Code>,
    /// Roles that own tables and are not superusers, if the mover is one.
    pub lesser: Vec<String>,
}

/// Finds code of others in relations, given by their schemas and names, and in what texts name.
pub fn find_in(
    connection: &mut Connection,
    tables: &TableNames,
    trusted: &[String],
    named: &NamedThings,
) -> Result<CodeFindings, RemoteError> {
    let [schemas, tables, trusted] = tables.lists_with(trusted);
    let NamedThings { schemas: of_names, names, columns } = named;
    let parameters =
        [schemas.as_str(), &tables, &trusted, HARMLESS, HARMLESS_TRIGGERS, of_names, names, columns];
    // Some sessions ask this twice: before and after a wait for writers.
    let rows = catalogs::ask_again(connection, "owners", &OWNERS, &catalogs::given(&parameters))?;
    let mut found = CodeFindings::default();
    for row in rows.rows {
        match row.as_slice() {
            [Some(owner), Some(what), Some(called_by), Some(others)] => found.code.push(Code {
                owner: owner.clone(),
                what: what.clone(),
                called_by: called_by.clone(),
                others: others.parse().unwrap_or(0),
            }),
            [Some(owner), None, ..] => found.lesser.push(owner.clone()),
            _ => {}
        }
    }
    Ok(found)
}

/// Refuses to read relations if that would run code of others. A view is code, too.
pub fn refuse(connection: &mut Connection, tables: &TableNames, trusted: &[String]) -> Result<(), Failure> {
    let found = find_in(connection, tables, trusted, &NamedThings::none())?;
    found.code.first().map_or(Ok(()), |first| Err(refused(connection.shard(), first)))
}

/// Returns the error about such code.
pub fn refused(shard: &str, code: &Code) -> Failure {
    let text = format!("on shard \"{shard}\" the mover would run untrusted code: {}", code.text());
    Failure::new(SqlState::NOT_IN_STATE, text).hint(hint(shard, &code.owner))
}
