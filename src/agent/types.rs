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
    "names or numbers of the source's catalog, taken over as they are written: a remark of the check";
const OF_TRANSACTIONS: &str =
    "the source's transactions, rows or log, taken over as they are written: a remark of the check";

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

    const HEAD: &str = "\
# Types

What is in these tables is known to be right: a test moves a table of each type, with rows
changed before they are copied, afterwards and at the fence. `shard_split_check()` refuses
every other type by table, column and type, before anything moves. A column of such a type
moves if you say how it is computed, for example as a text:

```text
SELECT shard_split_map(7, 'orders', 'shape', 'shape::text');
```

Arrays, domains, composite types, ranges and multiranges of these types move as well, and so
do enums; they must be made of the same on both sides. A type that is not in the table has
not been shown to arrive unchanged. What the last column calls a remark of the check arrives as it is written, and means something on the source alone:
`shard_split_accept()` takes it as it is. A column that the target alone has needs a default where it is of a
domain that is NOT NULL.

- **Travels**: `binary` where every column of a table does, else the whole table is written as
  text, under settings that are the same on every server.
- **Key**: whether a column of the primary key can be of the type. `by bytes`: equal values
  have equal bytes. `by its own equality`: rows are found by the operator of the key's own
  index. A collation that is not deterministic must be the same on both sides, and of the
  same version of its library.
- **Shard by**: the strategies of the keyspaces that can have such a shard-by column. Its
  collation must be deterministic; the type must be of the family of the keyspace's key type
  and of the other tables'. A keyspace of `char`, in which blanks at the end count for nothing, takes
  columns of `char` alone, and only a directory of texts takes those as well.

";

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

    fn docs() -> String {
        let mut text = HEAD.to_owned();
        text += "## The server's own\n\n| Type | Travels | Key | Shard by | |\n|---|---|---|---|---|\n";
        for known in BUILTIN {
            text += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                known.name,
                travels(known.travel),
                key(known.key),
                shard_by(known.name),
                known.note
            );
        }
        text += "\n## Of extensions\n\n| Type | Travels | Key | Extension |\n|---|---|---|---|\n";
        for (extension, name, role) in EXTENSIONS {
            text += &format!("| `{name}` | text | {} | {extension} |\n", key(*role));
        }
        text += "\nEnums can be keys, and shard-by columns of every strategy.\n";
        text
    }

    /// After a change of the tables: SHARDMASTER_WRITE_DOCS=1 in the environment.
    #[test]
    fn the_documentation_is_made_from_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/types.md");
        if std::env::var_os("SHARDMASTER_WRITE_DOCS").is_some() {
            std::fs::write(path, docs()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), docs(), "docs/types.md is stale");
    }
}
