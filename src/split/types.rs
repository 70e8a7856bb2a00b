//! Which types can do what in a split: a list of what tests have shown to be right. A
//! type that is not in it is refused before anything moves.

use super::shape::{Column, Part};

/// How values come over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Travel {
    /// In their binary form, which is the same on every server and version.
    Binary,
    /// In their text form, which the sessions' settings make the same everywhere.
    Text,
    /// Not at all: they have no form that can be read back.
    Never,
}

/// What a type can be in a primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Equal values have equal bytes.
    Plain,
    /// Its equality is one of its own.
    Own,
    /// Its values cannot be in a primary key.
    No,
}

/// Values that routing takes for the same key, whatever the columns' types are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Family {
    Integer,
    Numeric,
    Text,
    Uuid,
    /// By its type: labels are compared with none of another type.
    Enum(String),
}

#[derive(Debug)]
pub struct Known {
    pub name: &'static str,
    pub travel: Travel,
    pub key: Key,
    pub note: &'static str,
}

const fn known(name: &'static str, travel: Travel, key: Key) -> Known {
    Known { name, travel, key, note: "" }
}

const fn noted(name: &'static str, travel: Travel, key: Key, note: &'static str) -> Known {
    Known { name, travel, key, note }
}

const OF_CATALOG: &str = "names or numbers of the source's catalog, taken over as they are written";

/// The server's own types, as they are written without length and precision.
pub const BUILTIN: &[Known] = &[
    known("smallint", Travel::Binary, Key::Plain),
    known("integer", Travel::Binary, Key::Plain),
    known("bigint", Travel::Binary, Key::Plain),
    noted("numeric", Travel::Binary, Key::Own, "PostgreSQL 13 knows no infinity and refuses it"),
    known("real", Travel::Binary, Key::Own),
    known("double precision", Travel::Binary, Key::Own),
    known("boolean", Travel::Binary, Key::Plain),
    known("text", Travel::Binary, Key::Plain),
    known("character varying", Travel::Binary, Key::Plain),
    known("character", Travel::Binary, Key::Own),
    noted(
        "\"char\"",
        Travel::Text,
        Key::Plain,
        "not between versions before and from 16, which write it differently",
    ),
    known("name", Travel::Text, Key::Own),
    known("bytea", Travel::Binary, Key::Plain),
    known("uuid", Travel::Binary, Key::Plain),
    known("date", Travel::Binary, Key::Plain),
    known("time without time zone", Travel::Binary, Key::Plain),
    known("time with time zone", Travel::Binary, Key::Own),
    known("timestamp without time zone", Travel::Binary, Key::Plain),
    known("timestamp with time zone", Travel::Binary, Key::Plain),
    noted("interval", Travel::Text, Key::Own, "versions before 17 know no infinity and refuse it"),
    known("json", Travel::Binary, Key::No),
    known("jsonb", Travel::Binary, Key::Own),
    known("jsonpath", Travel::Text, Key::No),
    known("xml", Travel::Text, Key::No),
    known("inet", Travel::Binary, Key::Own),
    known("cidr", Travel::Binary, Key::Own),
    known("macaddr", Travel::Binary, Key::Own),
    known("macaddr8", Travel::Text, Key::Own),
    known("bit", Travel::Text, Key::Own),
    known("bit varying", Travel::Text, Key::Own),
    noted("money", Travel::Text, Key::Own, "where lc_monetary is the same on both servers"),
    known("point", Travel::Text, Key::No),
    known("line", Travel::Text, Key::No),
    known("lseg", Travel::Text, Key::No),
    known("box", Travel::Text, Key::No),
    known("path", Travel::Text, Key::No),
    known("polygon", Travel::Text, Key::No),
    known("circle", Travel::Text, Key::No),
    known("tsvector", Travel::Text, Key::Own),
    known("tsquery", Travel::Text, Key::Own),
    known("int4range", Travel::Text, Key::Own),
    known("int8range", Travel::Text, Key::Own),
    known("numrange", Travel::Text, Key::Own),
    known("tsrange", Travel::Text, Key::Own),
    known("tstzrange", Travel::Text, Key::Own),
    known("daterange", Travel::Text, Key::Own),
    known("int4multirange", Travel::Text, Key::Own),
    known("int8multirange", Travel::Text, Key::Own),
    known("nummultirange", Travel::Text, Key::Own),
    known("tsmultirange", Travel::Text, Key::Own),
    known("tstzmultirange", Travel::Text, Key::Own),
    known("datemultirange", Travel::Text, Key::Own),
    known("pg_lsn", Travel::Text, Key::Own),
    known("pg_snapshot", Travel::Text, Key::No),
    known("txid_snapshot", Travel::Text, Key::No),
    known("xid", Travel::Text, Key::No),
    known("xid8", Travel::Text, Key::Own),
    known("cid", Travel::Text, Key::No),
    known("tid", Travel::Text, Key::Own),
    known("int2vector", Travel::Text, Key::No),
    known("oidvector", Travel::Text, Key::Own),
    known("refcursor", Travel::Text, Key::No),
    noted("oid", Travel::Text, Key::Plain, OF_CATALOG),
    noted("regclass", Travel::Text, Key::Own, OF_CATALOG),
    noted("regcollation", Travel::Text, Key::Own, OF_CATALOG),
    noted("regconfig", Travel::Text, Key::Own, OF_CATALOG),
    noted("regdictionary", Travel::Text, Key::Own, OF_CATALOG),
    noted("regnamespace", Travel::Text, Key::Own, OF_CATALOG),
    noted("regoper", Travel::Text, Key::Own, OF_CATALOG),
    noted("regoperator", Travel::Text, Key::Own, OF_CATALOG),
    noted("regproc", Travel::Text, Key::Own, OF_CATALOG),
    noted("regprocedure", Travel::Text, Key::Own, OF_CATALOG),
    noted("regrole", Travel::Text, Key::Own, OF_CATALOG),
    noted("regtype", Travel::Text, Key::Own, OF_CATALOG),
    noted("aclitem", Travel::Never, Key::No, "names roles, which may be others on the target"),
    noted("gtsvector", Travel::Never, Key::No, "cannot be read back"),
    noted("pg_brin_bloom_summary", Travel::Never, Key::No, "cannot be read back"),
    noted("pg_brin_minmax_multi_summary", Travel::Never, Key::No, "cannot be read back"),
    noted("pg_dependencies", Travel::Never, Key::No, "cannot be read back"),
    noted("pg_mcv_list", Travel::Never, Key::No, "cannot be read back"),
    noted("pg_ndistinct", Travel::Never, Key::No, "cannot be read back"),
    noted("pg_node_tree", Travel::Never, Key::No, "cannot be read back"),
];

/// Types of extensions: (extension, type). All travel as text.
pub const EXTENSIONS: &[(&str, &str, Key)] = &[
    ("citext", "citext", Key::Own),
    ("cube", "cube", Key::Own),
    ("hstore", "hstore", Key::Own),
    ("intarray", "query_int", Key::No),
    ("isn", "ean13", Key::Own),
    ("isn", "isbn13", Key::Own),
    ("isn", "ismn13", Key::Own),
    ("isn", "issn13", Key::Own),
    ("isn", "isbn", Key::Own),
    ("isn", "ismn", Key::Own),
    ("isn", "issn", Key::Own),
    ("isn", "upc", Key::Own),
    ("ltree", "ltree", Key::Own),
    ("ltree", "lquery", Key::No),
    ("ltree", "ltxtquery", Key::No),
    ("seg", "seg", Key::Own),
];

fn builtin(name: &str) -> Option<&'static Known> {
    BUILTIN.iter().find(|known| known.name == name)
}

impl Part {
    /// None: nothing is known of it.
    fn travel(&self) -> Option<Travel> {
        match (&self.extension, self.kind.as_str()) {
            (Some(extension), _) => {
                let is_it = |known: &&(&str, &str, Key)| known.0 == extension && known.1 == self.name;
                EXTENSIONS.iter().find(is_it).map(|_| Travel::Text)
            }
            (None, "e") => Some(Travel::Text),
            (None, _) if self.builtin => builtin(&self.name).map(|known| known.travel),
            (None, _) => None,
        }
    }

    fn key(&self) -> Option<Key> {
        match (&self.extension, self.kind.as_str()) {
            (Some(extension), _) => {
                EXTENSIONS.iter().find(|k| k.0 == extension && k.1 == self.name).map(|known| known.2)
            }
            (None, "e") => Some(Key::Own),
            (None, _) if self.builtin => builtin(&self.name).map(|known| known.key),
            (None, _) => None,
        }
    }
}

impl Column {
    /// Whether its values can be read back on another server: by the part that cannot,
    /// if there is one.
    pub fn cannot_travel(&self) -> Option<&Part> {
        self.parts.iter().find(|part| !matches!(part.travel(), Some(Travel::Binary | Travel::Text)))
    }

    pub fn has_part(&self, builtin: &str) -> bool {
        self.parts.iter().any(|part| part.builtin && part.name == builtin)
    }

    /// Whether its binary form is the same on every server: of arrays too.
    pub fn is_binary(&self) -> bool {
        self.builtin
            && !self.parts.is_empty()
            && self.parts.iter().all(|p| p.travel() == Some(Travel::Binary))
    }

    /// Whether it can be in a primary key whose rows are to be found again: by the part
    /// that cannot, if there is one.
    pub fn cannot_be_key(&self) -> Option<&Part> {
        self.parts.iter().find(|part| !matches!(part.key(), Some(Key::Plain | Key::Own)))
    }

    /// Whether equal values have equal bytes, and are of a type with one form.
    pub fn is_plain_key(&self) -> bool {
        let name = if self.base == "bpchar" { "character" } else { self.base.as_str() };
        self.equality.is_none() && builtin(name).is_some_and(|known| known.key == Key::Plain)
    }

    /// None: not a type of shard-by columns.
    pub fn family(&self) -> Option<Family> {
        if self.is_enum {
            return Some(Family::Enum(self.base.clone()));
        }
        match self.base.as_str() {
            "smallint" | "integer" | "bigint" => Some(Family::Integer),
            "numeric" => Some(Family::Numeric),
            "text" | "character varying" | "character" | "bpchar" => Some(Family::Text),
            "uuid" => Some(Family::Uuid),
            _ => None,
        }
    }
}
