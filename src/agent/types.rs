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

impl Family {
    /// The type that a redirect's table and its look-ups compare keys of the family as.
    pub fn compared_as(&self) -> &'static str {
        match self {
            Family::Integer | Family::Numeric => "pg_catalog.numeric",
            Family::Text | Family::Enum(_) => "pg_catalog.text",
            Family::Uuid => "pg_catalog.uuid",
        }
    }
}

#[derive(Debug)]
pub struct Known {
    pub name: &'static str,
    pub travel: Travel,
    pub key: Key,
    pub note: &'static str,
    /// Its values mean something on the server that gave them, and nothing or something else on another.
    pub of_one_server: bool,
}

const fn known(name: &'static str, travel: Travel, key: Key) -> Known {
    noted(name, travel, key, "")
}

const fn noted(name: &'static str, travel: Travel, key: Key, note: &'static str) -> Known {
    Known { name, travel, key, note, of_one_server: false }
}

const fn of_one_server(name: &'static str, key: Key, note: &'static str) -> Known {
    Known { name, travel: Travel::Text, key, note, of_one_server: true }
}

const OF_CATALOG: &str =
    "names or numbers of the source's catalog, copied as they are: a remark of the check";
const OF_TRANSACTIONS: &str =
    "the source's transactions, rows or log, copied as they are: a remark of the check";

/// The server's own types, as they are written without length and precision.
pub const BUILTIN: &[Known] = &[
    known("smallint", Travel::Binary, Key::Plain),
    known("integer", Travel::Binary, Key::Plain),
    known("bigint", Travel::Binary, Key::Plain),
    noted("numeric", Travel::Binary, Key::Own, "PostgreSQL 13 has no infinity and refuses it"),
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
        "not between versions before 16 and from 16, which write it differently",
    ),
    known("name", Travel::Text, Key::Own),
    known("bytea", Travel::Binary, Key::Plain),
    known("uuid", Travel::Binary, Key::Plain),
    known("date", Travel::Binary, Key::Plain),
    known("time without time zone", Travel::Binary, Key::Plain),
    known("time with time zone", Travel::Binary, Key::Own),
    known("timestamp without time zone", Travel::Binary, Key::Plain),
    known("timestamp with time zone", Travel::Binary, Key::Plain),
    noted("interval", Travel::Text, Key::Own, "versions before 17 have no infinity and refuse it"),
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
    of_one_server("pg_lsn", Key::Own, OF_TRANSACTIONS),
    of_one_server("pg_snapshot", Key::No, OF_TRANSACTIONS),
    of_one_server("txid_snapshot", Key::No, OF_TRANSACTIONS),
    of_one_server("xid", Key::No, OF_TRANSACTIONS),
    of_one_server("xid8", Key::Own, OF_TRANSACTIONS),
    of_one_server("cid", Key::No, OF_TRANSACTIONS),
    of_one_server("tid", Key::Own, OF_TRANSACTIONS),
    known("refcursor", Travel::Text, Key::No),
    of_one_server("oid", Key::Plain, OF_CATALOG),
    of_one_server("regclass", Key::Own, OF_CATALOG),
    of_one_server("regcollation", Key::Own, OF_CATALOG),
    of_one_server("regconfig", Key::Own, OF_CATALOG),
    of_one_server("regdictionary", Key::Own, OF_CATALOG),
    of_one_server("regnamespace", Key::Own, OF_CATALOG),
    of_one_server("regoper", Key::Own, OF_CATALOG),
    of_one_server("regoperator", Key::Own, OF_CATALOG),
    of_one_server("regproc", Key::Own, OF_CATALOG),
    of_one_server("regprocedure", Key::Own, OF_CATALOG),
    of_one_server("regrole", Key::Own, OF_CATALOG),
    of_one_server("regtype", Key::Own, OF_CATALOG),
    noted("aclitem", Travel::Never, Key::No, "names roles, which may differ on the target"),
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
    ("lo", "lo", Key::Plain),
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

    /// What is special about a type of the server.
    pub fn note(&self) -> Option<&'static str> {
        let known = builtin(&self.name).filter(|_| self.builtin && self.extension.is_none())?;
        (!known.note.is_empty()).then_some(known.note)
    }

    /// Whether its values mean something on one server only.
    fn is_of_one_server(&self) -> bool {
        match &self.extension {
            // A domain over oid.
            Some(extension) => extension == "lo",
            None => self.builtin && builtin(&self.name).is_some_and(|known| known.of_one_server),
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

    /// The part whose values mean something on one server only, if there is one: in an array, a range or a composite, too.
    pub fn of_one_server(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.is_of_one_server())
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

    /// Blanks at the end of its values count for nothing.
    pub fn is_padded(&self) -> bool {
        !self.is_enum && matches!(self.base.as_str(), "character" | "bpchar")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn travels(travel: Travel) -> &'static str {
        match travel {
            Travel::Binary => "binary",
            Travel::Text => "text",
            Travel::Never => "no",
        }
    }

    fn key(key: Key) -> &'static str {
        match key {
            Key::Plain => "by bytes",
            Key::Own => "by its own equality",
            Key::No => "no",
        }
    }

    fn shard_by(name: &str) -> &'static str {
        let column = Column { base: name.into(), ..Column::default() };
        match column.family() {
            Some(Family::Integer | Family::Text | Family::Uuid) => "directory, hash, range",
            Some(Family::Numeric) => "directory",
            Some(Family::Enum(_)) | None => "no",
        }
    }

    /// The two tables of the page.
    fn tables() -> [String; 2] {
        let mut builtin = "| Type | Travels | Key | Shard by | Note |\n|---|---|---|---|---|\n".to_owned();
        for known in BUILTIN {
            builtin += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                known.name,
                travels(known.travel),
                key(known.key),
                shard_by(known.name),
                known.note
            );
        }
        let mut extensions = "| Type | Travels | Key | Extension |\n|---|---|---|---|\n".to_owned();
        for (extension, name, role) in EXTENSIONS {
            extensions += &format!("| `{name}` | text | {} | {extension} |\n", key(*role));
        }
        [builtin, extensions]
    }

    #[test]
    fn the_documentation_has_the_tables() {
        let page = include_str!("../../docs/reference/types.md");
        for table in tables() {
            assert!(page.contains(&format!("\n\n{table}\n")), "docs/reference/types.md is to have:\n{table}");
        }
    }
}
