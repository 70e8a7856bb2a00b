//! What tables have beside their columns: what the target lacks, clients miss after the cutover; what it has alone, rows that come
//! need not keep to.

use shardmaster_tests::cluster::{CLIENT, OWNER};
use shardmaster_tests::fixture::{LIMIT, by_owner, by_superuser, by_superusers, cluster, plan, source};

/// On the source alone, each by a class of its own.
const SOURCE: &str = "
    CREATE TABLE public.kinds (kind text PRIMARY KEY);
    CREATE TABLE public.\"Audit\" (at timestamptz); CREATE TABLE public.there (at timestamptz);
    CREATE FUNCTION public.helper() RETURNS text LANGUAGE sql AS 'SELECT 1::text';
    CREATE FUNCTION public.stamp() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO public.\"Audit\" SELECT at FROM there; PERFORM helper(); RETURN NEW; END $$;
    CREATE TRIGGER stamp BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION public.stamp();
    CREATE TRIGGER off BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION public.stamp();
    ALTER TABLE items DISABLE TRIGGER off;
    ALTER TABLE items ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON items TO app USING (tenant = current_setting('app.tenant', true));
    CREATE POLICY named ON items TO app USING (tenant <> 'x');
    ALTER TABLE items ADD CONSTRAINT positive CHECK (code >= 0), ADD CONSTRAINT alike CHECK (id > 0),
        ADD UNIQUE (tenant, val), ADD COLUMN kind text, ADD FOREIGN KEY (kind) REFERENCES public.kinds,
        ADD COLUMN at timestamptz DEFAULT now(), ALTER val SET NOT NULL;
    CREATE VIEW public.of_items AS SELECT tenant, id FROM items;
    CREATE ROLE reporting; CREATE ROLE moved_away; GRANT USAGE ON SCHEMA public TO app; GRANT SELECT ON items TO PUBLIC;
    CREATE FUNCTION public.sees(t text) RETURNS boolean LANGUAGE sql AS $$ SELECT t = 'x' $$;
    CREATE POLICY seen ON items TO app USING (public.sees(tenant));
    CREATE TABLE public.owners (id int PRIMARY KEY); GRANT SELECT ON public.owners TO mover, app_owner; ALTER TABLE items ADD owner int;
    ALTER TABLE items ADD CONSTRAINT owned FOREIGN KEY (owner) REFERENCES public.owners ON DELETE CASCADE;
    GRANT SELECT ON items TO reporting, moved_away;
    GRANT UPDATE (val) ON items TO reporting;
    CREATE SEQUENCE public.item_numbers; ALTER SEQUENCE public.item_numbers OWNER TO app_owner;
    ALTER TABLE items ALTER id SET DEFAULT nextval('item_numbers');
    GRANT USAGE ON SEQUENCE public.item_numbers TO app";

const TARGET: &str = "
    CREATE VIEW public.there AS SELECT now() AS at;
    ALTER TABLE items ADD COLUMN kind text, ADD COLUMN at timestamptz, ADD CONSTRAINT by_another_name CHECK (id > 0);
    CREATE POLICY named ON items TO app USING (tenant <> 'y');
    CREATE SEQUENCE public.item_numbers; ALTER SEQUENCE public.item_numbers OWNER TO app_owner;
    ALTER TABLE items ALTER id SET DEFAULT nextval('item_numbers');
    CREATE ROLE reporting; REVOKE USAGE ON SCHEMA public FROM PUBLIC, app; GRANT USAGE ON SCHEMA public TO app_owner, mover;
    CREATE FUNCTION public.sees(t text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE POLICY seen ON items TO app USING (public.sees(tenant));
    CREATE TABLE public.owners (id int PRIMARY KEY); GRANT SELECT ON public.owners TO mover, app_owner; ALTER TABLE items ADD owner int;
    ALTER TABLE items ADD CONSTRAINT owned FOREIGN KEY (owner) REFERENCES public.owners";

#[test]
fn what_the_target_lacks_is_accepted_by_name() {
    let cluster = cluster(&["shardmaster.reverse = on"]);
    assert_eq!((CLIENT, OWNER), ("app", "app_owner"));
    by_superuser(&cluster, 0, SOURCE);
    by_superuser(&cluster, 1, TARGET);
    by_superuser(&cluster, 1, "GRANT SELECT ON items TO reporting; REVOKE DELETE ON items FROM app");
    let split = plan(&cluster);
    let found = split.findings().unwrap();
    let lacks: Vec<&String> =
        found.iter().filter(|found| found.starts_with("target: missing beside columns")).collect();
    let [helper, audit, sees, text] = lacks.as_slice() else { panic!("{found:#?}") };
    assert!(audit.contains("table public.\"Audit\", which the target lacks"), "{audit}");
    assert!(
        sees.contains("function public.sees(text), which writes to the moving tables call, is another one"),
        "{sees}"
    );
    assert!(helper.contains("function public.helper, which the target lacks"), "{helper}");
    for wanted in [
        "trigger \"stamp\"",
        "ROW LEVEL SECURITY",
        "policy \"own\"",
        "policy \"named\" as it is on the source",
        "check \"positive\"",
        "unique key \"items_tenant_val_key\"",
        "foreign key \"items_kind_fkey\"",
        "view \"of_items\"",
        "DEFAULT of column \"at\"",
        "NOT NULL of column \"val\"",
        "DELETE and nextval of \"id\" and schema USAGE for app",
        "SELECT for moved_away, which is no role there",
        "policy \"seen\" as it is on the source",
        "foreign key \"owned\" as it is on the source",
        "SELECT and schema USAGE for public",
        "UPDATE of \"val\" for reporting",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    for other in ["off", "alike", "items_pkey", "code_key", "SELECT for reporting", "app_owner"] {
        assert!(!text.contains(other), "{other}: {text}");
    }
    let error = split.run(|_| ()).unwrap_err();
    assert!(error.to_string().contains("missing beside columns"), "{error}");
    split.accept_remarks().unwrap();
    split.run(|_| ()).unwrap();
    // What the source kept its rows to, and the target did not, is in the way back.
    let events = split.events().unwrap();
    assert!(events.contains("it cannot be taken back: items: column"), "{events}");
    split.finish(LIMIT).unwrap();
}

/// On the target alone.
const ALONE: &str = "
    ALTER TABLE items ADD CONSTRAINT one_each UNIQUE (tenant, val);
    CREATE INDEX by_number ON items ((val::int));
    CREATE INDEX short ON items (code, id);
    CREATE INDEX partly ON items (id) WHERE 10 / code > 0;
    CREATE INDEX long ON items (val);
    CREATE INDEX known ON items (tenant, code);
    ALTER TABLE items ADD COLUMN share int GENERATED ALWAYS AS (100 / code) STORED";

#[test]
fn what_the_target_has_alone_is_said_before_rows_fail() {
    let cluster = cluster(&[]);
    by_owner(&cluster, 1, ALONE);
    by_superuser(
        &cluster,
        1,
        "CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER no BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION public.no();
         ALTER TABLE items ENABLE ROW LEVEL SECURITY",
    );
    // Rows of the same value in both, and one that no index takes.
    source(&cluster).batch_execute("UPDATE items SET val = '7' WHERE id IN (2, 4)").unwrap();
    let split = plan(&cluster);
    let found = split.findings().unwrap();
    let of = |name: &str| found.iter().filter(|found| found.starts_with(name)).cloned().collect::<Vec<_>>();
    let keys = of("target: unique keys and exclusions");
    assert!(keys.len() == 1 && keys[0].contains("unique key \"one_each\""), "{found:#?}");
    let alone = of("target: of its own beside columns");
    assert_eq!(alone.len(), 1, "{found:#?}");
    for (name, is_told) in [
        ("by_number", true),
        ("partly", true),
        ("\"long\"", true),
        ("\"share\"", true),
        ("trigger \"no\"", true),
        ("ROW LEVEL SECURITY", true),
        ("short", false),
        ("known", false),
    ] {
        assert_eq!(alone[0].contains(name), is_told, "{name}: {}", alone[0]);
    }
    split.accept_remarks().unwrap();
    let error = split.run(|_| ()).unwrap_err();
    assert!(error.to_string().contains("unique keys and exclusions"), "{error}");
    // The source promises as much, by a key of fewer columns.
    source(&cluster)
        .batch_execute("UPDATE items SET val = id; CREATE UNIQUE INDEX one ON items (val)")
        .unwrap();
    by_superuser(
        &cluster,
        1,
        "ALTER TABLE items DROP CONSTRAINT one_each; CREATE UNIQUE INDEX one ON items (val); ALTER TABLE items ADD UNIQUE (tenant, val)",
    );
    let found = split.findings().unwrap();
    assert!(!found.iter().any(|found| found.contains("unique keys and exclusions")), "{found:#?}");
}

#[test]
fn rows_that_a_publication_keeps_as_they_are_are_found_before_the_finish() {
    let cluster = cluster(&["wal_level = logical"]);
    by_superusers(&cluster, "CREATE PUBLICATION told FOR TABLE items");
    let split = plan(&cluster);
    assert_eq!(split.findings().unwrap(), [""; 0]);
    by_superuser(&cluster, 0, "ALTER TABLE items REPLICA IDENTITY NOTHING");
    let found = split.findings_with_hints().unwrap();
    assert!(
        found.len() == 1
            && found[0].starts_with("source: publications: ")
            && found[0].contains("REPLICA IDENTITY DEFAULT"),
        "{found:?}"
    );
    by_superusers(
        &cluster,
        "ALTER TABLE items REPLICA IDENTITY DEFAULT; ALTER PUBLICATION told SET TABLE items WHERE (val <> 'x')",
    );
    let found = split.findings().unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    // Inserts alone are told of.
    by_superusers(&cluster, "ALTER PUBLICATION told SET (publish = 'insert')");
    assert_eq!(split.findings().unwrap(), [""; 0]);
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
}
