//! Runs the commands in the header of each example and compares their output with the header.
#![cfg(unix)]

use rethread_testkit::walkthrough;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// One test per example, and one that finds examples without a test.
macro_rules! examples {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                walkthrough::run(&examples().join(concat!(stringify!($name), ".rs")));
            }
        )*

        #[test]
        fn every_example_has_a_test() {
            let files = std::fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path());
            let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
            let names: BTreeSet<String> = sources.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
            let tested = BTreeSet::from([$(stringify!($name).to_owned()),*]);
            assert_eq!(names, tested);
        }
    };
}

examples! {
    hello typed progress ask_the_client resume subscriptions embedded_store behind_auth in_an_axum_app graceful_shutdown
}
