package mysql_test

import "time"

const longLease = time.Minute
