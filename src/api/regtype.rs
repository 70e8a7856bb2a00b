//! `regtype` as an argument: pgrx has no type for it.

use pgrx::callconv::{Arg, ArgAbi};
use pgrx::nullable::Nullable;
use pgrx::pg_sys;

/// A type that the caller gives by name.
pub struct RegType(pub pg_sys::Oid);

// SAFETY: a regtype is passed like an oid.
unsafe impl<'fcx> ArgAbi<'fcx> for RegType {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller keeps the promise of the trait.
        unsafe { RegType(pg_sys::Oid::unbox_arg_unchecked(arg)) }
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: as above.
        unsafe { pg_sys::Oid::unbox_nullable_arg(arg) }.into_option().map(RegType).into()
    }
}

pgrx::pgrx_sql_entity_graph::impl_sql_translatable!(RegType, arg_only = "regtype");
