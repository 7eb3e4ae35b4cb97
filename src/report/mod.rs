//! What the user is shown.
