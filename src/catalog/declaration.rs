//! Roles whose declarations count, identified by number, since another role may have taken a role's name. In another
//! database system, where a dump was restored, numbers differ, so the name decides.

use super::local;
use crate::catalog::caller::Caller;
use crate::server::sql;

/// Returns the name under which a role's declaration is stored. If another role has declared something under this name
/// before, the name includes the number.
pub fn by(caller: &Caller) -> String {
    let name = caller.name();
    if !local::has_table("known_role") {
        return name;
    }
    let is_others = "SELECT true FROM shardmaster.known_role k, pg_catalog.pg_control_system() c
                      WHERE k.name = $1 AND k.of_system = c.system_identifier AND k.role <> $2";
    let kept = match sql::exists(is_others, &[name.as_str().into(), caller.id().into()]) {
        true => format!("{name} ({})", caller.id().to_u32()),
        false => name,
    };
    sql::write(
        "INSERT INTO shardmaster.known_role AS k (name, role, of_system)
         SELECT $1, $2, system_identifier FROM pg_catalog.pg_control_system()
             ON CONFLICT (name) DO UPDATE SET role = excluded.role, of_system = excluded.of_system
          WHERE (k.role, k.of_system) <> (excluded.role, excluded.of_system)",
        &[kept.as_str().into(), caller.id().into()],
    );
    kept
}

/// Returns an SQL expression: whether the role `r` of pg_roles is the one whose declaration is stored under a name.
pub fn is(said: &str) -> String {
    let by_name = format!("SELECT n.oid FROM pg_catalog.pg_roles n WHERE n.rolname = {said}");
    // A catalog that is not updated yet has only names.
    if local::has_table("known_role") {
        format!(
            "r.oid = coalesce((SELECT k.role FROM shardmaster.known_role k, pg_catalog.pg_control_system() c
                                WHERE k.name = {said} AND k.of_system = c.system_identifier), ({by_name}))"
        )
    } else {
        format!("r.oid = ({by_name})")
    }
}
