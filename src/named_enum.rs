//! Enums whose variants have a name, in SQL, in the catalog and in messages.

/// Defines an enum with the names of its variants.
macro_rules! named_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$about:meta])* $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name { $($(#[$about])* $variant),+ }

        // Some enums are only written, others only read.
        #[allow(dead_code)]
        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == name)
            }

            /// Lists the names in quotes, for messages.
            pub fn names() -> String {
                $crate::words::quoted(Self::ALL.iter().map(|one| one.as_str()))
            }
        }
    };
}
pub(crate) use named_enum;
