//! Texts of progress reports.

use std::borrow::Cow;
use std::sync::Arc;

/// The text of a progress report: a string of any type, or `None`.
pub trait ProgressMessage: private::Sealed {
    /// The text, if there is one.
    #[doc(hidden)]
    fn as_message(&self) -> Option<&str>;
}

mod private {
    #[allow(unnameable_types, reason = "it keeps the trait closed")]
    pub trait Sealed {}
}

impl private::Sealed for Option<&str> {}

impl ProgressMessage for Option<&str> {
    fn as_message(&self) -> Option<&str> {
        *self
    }
}

macro_rules! strings {
    ($($string:ty)*) => {
        $(
            impl private::Sealed for $string {}

            impl ProgressMessage for $string {
                fn as_message(&self) -> Option<&str> {
                    Some(self)
                }
            }
        )*
    };
}

strings! { &str String &String Cow<'_, str> Box<str> Arc<str> }
