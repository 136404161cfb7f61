package main

// commands is the command line, as the README and `connectd help` show it.
func commands() []*command {
	return []*command{
		runCommand(), checkCommand(), initCommand(), doctorCommand(), statusCommand(), rowsCommand(), auditCommand(), pluginsCommand(), schemaCommand(),
		webhookCommand(), demoCommand(), versionCommand(), serveSinkCommand(),
	}
}
