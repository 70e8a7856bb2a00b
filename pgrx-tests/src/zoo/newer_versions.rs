//! Features of the versions after 15.

use super::keys::key;
use super::values::value;
use super::{Case, TENANTS};

pub fn values() -> Vec<Case> {
    vec![
        value("newer_interval", "interval", "", &["infinity", "-infinity", "1 mon"]).since(17),
        value("newer_intervals", "interval[]", "", &["{infinity,NULL}"]).since(17),
    ]
}

pub fn keys() -> Vec<Case> {
    let of_text: &[&str] = &["", "a", "A", "é", "e\u{301}"];
    vec![
        key(
            "newer_interval_key",
            ("", "interval", &["infinity", "1 mon", "-infinity"], &[("1 mon", "30 days")]),
        )
        .since(17),
        key("newer_c_utf8", ("", "text COLLATE pg_c_utf8", of_text, &[])).since(17),
        key("newer_unicode", ("", "text COLLATE pg_unicode_fast", of_text, &[])).since(18),
    ]
}

pub fn shapes() -> Vec<Case> {
    virtual_columns().into_iter().chain(constraints()).chain(partitions()).collect()
}

/// Virtual generated columns.
fn virtual_columns() -> Vec<Case> {
    let table = |kind: &str| {
        format!(
            "CREATE TABLE {{t}} (tenant text, id int, n numeric, twice numeric{kind}, PRIMARY KEY (tenant, id))"
        )
    };
    let (here, stored) =
        (table(" GENERATED ALWAYS AS (n * 2) VIRTUAL"), table(" GENERATED ALWAYS AS (n * 2) STORED"));
    let of = |table: &str, source: &str, target: &str| {
        Case::shape(table, source, ", n", ", i / 7.0").on_target(target).since(18)
    };
    vec![
        of("virtual", &here, &here),
        of("virtual_here", &here, &table("")),
        of("virtual_there", &stored, &here),
        of("virtual_computed", &table(""), &here).left_out("twice"),
        Case::shape(
            "virtual_by",
            "CREATE TABLE {t} (id int, a text, tenant text GENERATED ALWAYS AS (lower(a)) VIRTUAL, PRIMARY KEY (a, id))",
            "",
            "",
        )
        .written_in("a")
        .since(18),
    ]
}

fn constraints() -> Vec<Case> {
    let table = |rest: &str| format!("CREATE TABLE {{t}} (tenant text, id int, v text, {rest})");
    let of = |name: &str, rest: &str| Case::shape(name, &table(rest), ", v", ", 'v' || i").since(18);
    let mut nulls = of("not_null_later", "PRIMARY KEY (tenant, id)");
    nulls.fill.extend(with_nulls());
    let referring = "d daterange, r int, PRIMARY KEY (tenant, id), UNIQUE (tenant, id, d WITHOUT OVERLAPS),
                     FOREIGN KEY (tenant, r, PERIOD d) REFERENCES {t} (tenant, id, PERIOD d)";
    let mut referring =
        Case::shape("temporal_references", &table(referring), ", d", ", '[2024-01-01,)'").since(18);
    referring.fill.push(
        "INSERT INTO {t} (tenant, id, d, r) SELECT tenant, i, '[2024-01-01,)', nullif(i - 1, 3000)
           FROM unnest('{moves,stays}'::text[]) tenant, generate_series(3001, 3003) i"
            .to_owned(),
    );
    vec![
        referring,
        Case::shape(
            "references_nothing",
            &table("r int, PRIMARY KEY (tenant, id), FOREIGN KEY (tenant, r) REFERENCES {t} NOT ENFORCED"),
            ", r",
            ", -i",
        )
        .since(18),
        of("not_enforced", "PRIMARY KEY (tenant, id), CHECK (id < 0) NOT ENFORCED"),
        of("not_enforced_here", "PRIMARY KEY (tenant, id), CHECK (id < 0) NOT ENFORCED")
            .on_target(&table("PRIMARY KEY (tenant, id)")),
        of("not_null_named", "CONSTRAINT {t}_given NOT NULL v, PRIMARY KEY (tenant, id)")
            .on_target(&table("NOT NULL v NO INHERIT, PRIMARY KEY (tenant, id)")),
        nulls,
        Case::shape(
            "temporal",
            "CREATE TABLE {t} (tenant text, id int, d daterange, PRIMARY KEY (tenant, id), UNIQUE (tenant, id, d WITHOUT OVERLAPS))",
            ", d",
            ", daterange('2024-01-01'::date + i, NULL)",
        )
        .since(18),
    ]
}

/// Rows with NULL in a column that takes no NULL from then on.
fn with_nulls() -> Vec<String> {
    let rows = TENANTS.map(|tenant| format!("('{tenant}', 2001), ('{tenant}', 2002)")).join(", ");
    vec![
        format!("INSERT INTO {{t}} (tenant, id) VALUES {rows}"),
        "ALTER TABLE {t} ADD CONSTRAINT later NOT NULL v NOT VALID".to_owned(),
    ]
}

fn partitions() -> Vec<Case> {
    let of = |table: &str, rest: &str| {
        let ddl = format!(
            "CREATE TABLE {{t}} (tenant text, id int, {rest}) PARTITION BY RANGE (id);
             CREATE TABLE {{t}}_1 PARTITION OF {{t}} FOR VALUES FROM (MINVALUE) TO (20);
             CREATE TABLE {{t}}_2 PARTITION OF {{t}} DEFAULT"
        );
        Case::shape(table, &ddl, "", "")
    };
    vec![
        of("parts_identity", "n bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (tenant, id)").since(17),
        of("parts_excluded", "PRIMARY KEY (tenant, id), EXCLUDE USING gist (tenant WITH =, id WITH =)")
            .since(17),
        of("parts_virtual", "n int GENERATED ALWAYS AS (id * 2), PRIMARY KEY (tenant, id)").since(18),
    ]
}

pub fn refused() -> Vec<Case> {
    let table = |rest: &str| format!("CREATE TABLE {{t}} (tenant text, id int, v text, {rest})");
    let nullable = table("PRIMARY KEY (tenant, id)");
    let temporal = "d daterange, r int, PRIMARY KEY (tenant, id), UNIQUE (tenant, id, d WITHOUT OVERLAPS),
                    FOREIGN KEY (tenant, r, PERIOD d) REFERENCES {t} (tenant, id, PERIOD d)";
    let later = format!("{nullable}; ALTER TABLE {{t}} ADD CONSTRAINT later NOT NULL v NOT VALID");
    let case =
        |name: &str, source: &str, check: &'static str| Case::table(name, source).since(18).refused(check);
    vec![
        case(
            "temporal_key",
            "CREATE TABLE {t} (tenant text, id int, d daterange, PRIMARY KEY (tenant, id, d WITHOUT OVERLAPS))",
            "primary key by equality",
        ),
        case(
            "temporal_across",
            "CREATE TABLE {t} (tenant text, id int, d daterange, r int, PRIMARY KEY (tenant, id), UNIQUE (id, d WITHOUT OVERLAPS),
                               FOREIGN KEY (r, PERIOD d) REFERENCES {t} (id, PERIOD d))",
            "foreign keys across keys",
        ),
        // Nothing checks these constraints on the target, so they must be the source's own.
        case("temporal_mapped", &table(temporal), "foreign keys with PERIOD").map("r", "r + 0"),
        case("temporal_alone", &table("d daterange, r int, PRIMARY KEY (tenant, id)"), "foreign keys with PERIOD")
            .on_target(&table(
                "d daterange, r int, PRIMARY KEY (tenant, id), UNIQUE (id, d WITHOUT OVERLAPS),
                 FOREIGN KEY (r, PERIOD d) REFERENCES {t} (id, PERIOD d)",
            )),
        case("not_null_not_yet", &later, "same columns")
            .on_target(&table("NOT NULL v, PRIMARY KEY (tenant, id)")),
        case("not_null_never", &later, "same columns"),
        case("virtual_alone", &table("w int, PRIMARY KEY (tenant, id)"), "same columns")
            .on_target(&table("w int GENERATED ALWAYS AS (id) VIRTUAL, PRIMARY KEY (tenant, id)")),
        case(
            "virtual_otherwise",
            &table("w int GENERATED ALWAYS AS (id + 1) VIRTUAL, PRIMARY KEY (tenant, id)"),
            "same columns",
        )
        .on_target(&table("w int GENERATED ALWAYS AS (id) VIRTUAL, PRIMARY KEY (tenant, id)")),
    ]
}
