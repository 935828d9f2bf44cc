// Names of files: where one leads, whether two are one.
#ifndef HD_TOOLS_PATH_H
#define HD_TOOLS_PATH_H

// What `name` is, or will be once it is written, without links and dots, to be
// freed; NULL, and errno, if that cannot be. A link whose file is not there yet
// leads to it.
char *path_whole(const char *name);

#endif
