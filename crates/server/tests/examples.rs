//! Every example does what its header says: the commands in it are run as they are written, and what they print is compared
//! with what one should see.
#![cfg(unix)]

use rethread_testkit::walkthrough::follow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// One test for each, and one that says if there is an example without.
macro_rules! followed {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                follow(&examples().join(concat!(stringify!($name), ".rs")));
            }
        )*

        #[test]
        fn no_example_is_left_out() {
            let files = std::fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path());
            let sources = files.filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
            let names: BTreeSet<String> = sources.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
            let followed = BTreeSet::from([$(stringify!($name).to_owned()),*]);
            assert_eq!(names, followed);
        }
    };
}

followed! {
    hello progress ask_the_client resume subscriptions embedded_store behind_auth in_an_axum_app graceful_shutdown
}
