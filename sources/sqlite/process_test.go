package sqlite_test

const childEnv = "CONNECTD_SQLITE_TEST_CHILD"

func child() int { return 0 }
